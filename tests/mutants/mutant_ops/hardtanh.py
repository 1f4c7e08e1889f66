"""Piecewise linear with bounds."""

import torch


class Hardtanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo=-1.0, hi=1.0):
        ctx.save_for_backward(x)
        ctx.bounds = lo, hi
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        lo, hi = ctx.bounds
        return dy * ((x >= lo) & (x <= hi)), None, None


def inputs():
    return torch.randn(8, 8, dtype=torch.float64).mul_(2).requires_grad_(), -0.5, 1.5


FAULTS = [
    ("off-by-one mask", "boundary", "(x >= lo) & (x <= hi)", "(x >= lo)"),
    ("off-by-one mask", "boundary", "(x >= lo) & (x <= hi)", "(x >= 0) & (x <= hi)"),
    ("off-by-one mask", "boundary", "(x >= lo) & (x <= hi)", "(x >= -hi) & (x <= hi)"),
    ("inverted mask", "boundary", "(x >= lo) & (x <= hi)", "(x < lo) | (x > hi)"),
    ("missing mask", "boundary", "dy * ((x >= lo) & (x <= hi))", "dy"),
    ("mask of another tensor", None, "(x >= lo) & (x <= hi)", "(dy >= lo) & (dy <= hi)"),
]
WRAPPED = ["sign", "clipped cotangent", "last block", "strides ignored", "stale gradient"]
