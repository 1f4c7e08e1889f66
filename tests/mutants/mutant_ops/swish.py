"""Elementwise: x · sigmoid(x)."""

import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * (s + x * s * (1 - s))


def inputs():
    return (torch.randn(4, 6, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("missing term", "missing-term", "s + x * s * (1 - s)", "x * s * (1 - s)"),
    ("detached intermediate", "detached-intermediate", "s + x * s * (1 - s)", "s"),
    ("wrong sign of a term", "missing-term", "s + x * s * (1 - s)", "s - x * s * (1 - s)"),
    ("dropped factor", "missing-factor", "x * s * (1 - s)", "s * (1 - s)"),
    ("wrong operand", None, "s = torch.sigmoid(x)", "s = torch.sigmoid(dy)"),
    ("boundary", "boundary", "s = torch.sigmoid(x)", "s = torch.sigmoid(x).masked_fill(x > 1, 1.0)"),
]
WRAPPED = ["sign", "ignored cotangent", "strides ignored", "written grad_output", "stale gradient", "low precision inside", "last block", "odd sizes"]
