"""Broadcasting, an optional argument: x · w + b."""

import torch


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x, w)
        ctx.has_bias = b is not None
        y = x * w
        return y if b is None else y + b

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        db = dy.sum(0) if ctx.has_bias else None
        return dy * w, (dy * x).sum(0), db


def inputs():
    return (
        torch.randn(4, 4, dtype=torch.float64, requires_grad=True),
        torch.randn(4, dtype=torch.float64, requires_grad=True),
        torch.randn(4, dtype=torch.float64, requires_grad=True),
    )


FAULTS = [
    ("wrong reduction", "wrong-reduction-dim", "(dy * x).sum(0)", "(dy * x).sum(1)"),
    ("wrong reduction", "mean-for-sum", "dy.sum(0)", "dy.mean(0)"),
    ("wrong reduction", "mean-for-sum", "(dy * x).sum(0)", "(dy * x).mean(0)"),
    ("dropped factor", "missing-factor", "dy * w", "dy"),
    ("dropped factor", "missing-factor", "(dy * x).sum(0)", "dy.sum(0)"),
    ("wrong shape", None, "(dy * x).sum(0)", "(dy * x).sum(0)[:3]"),
    (
        "optional argument",
        None,
        "db = dy.sum(0) if ctx.has_bias else None",
        "db = dy.sum(0)",
        "(dy * x).sum(0)",
        "(dy * x).sum(0) * (1 if ctx.has_bias else 2)",
    ),
    ("wrong operand", "wrong-operand", "dy * w", "dy * x"),
]
WRAPPED = ["wrong when frozen", "written grad_output", "stale gradient", "second backward"]
