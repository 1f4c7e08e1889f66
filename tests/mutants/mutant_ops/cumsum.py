"""Cumulative sum of squares."""

import torch


class CumulativeSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).cumsum(-1)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy.flip(-1).cumsum(-1).flip(-1)


def inputs():
    return (torch.randn(3, 6, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("wrong direction", "permuted-gradient", "dy.flip(-1).cumsum(-1).flip(-1)", "dy.flip(-1).cumsum(-1)"),
    ("wrong direction", None, "dy.flip(-1).cumsum(-1).flip(-1)", "dy.cumsum(-1)"),
    ("off by one", "missing-term", "dy.flip(-1).cumsum(-1).flip(-1)", "(dy.flip(-1).cumsum(-1).flip(-1) - dy)"),
    ("wrong reduction", None, "dy.flip(-1).cumsum(-1).flip(-1)", "dy.sum(-1, keepdim=True)"),
    ("missing sum", None, "dy.flip(-1).cumsum(-1).flip(-1)", "dy"),
    ("dropped factor", "constant-factor", "2 * x", "x"),
]
WRAPPED = ["inputs' strides ignored", "written grad_output", "clipped cotangent", "last block", "second backward"]
