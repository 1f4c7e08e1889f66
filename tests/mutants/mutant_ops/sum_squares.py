"""Reduction over a dimension: Σ x² along dim."""

import torch


class SumSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, keepdim=False):
        ctx.save_for_backward(x)
        ctx.dim, ctx.keepdim = dim, keepdim
        return (x * x).sum(dim, keepdim=keepdim)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy if ctx.keepdim else dy.unsqueeze(ctx.dim)
        return 2 * x * dy, None, None


def inputs():
    return torch.randn(4, 4, dtype=torch.float64, requires_grad=True), 1, False


FAULTS = [
    ("dropped factor", "constant-factor", "2 * x * dy", "x * dy"),
    ("dropped factor", "missing-factor", "2 * x * dy", "2 * dy.expand_as(x)"),
    ("wrong reduction", "wrong-reduction-dim", "dy.unsqueeze(ctx.dim)", "dy.unsqueeze(1 - ctx.dim)"),
    ("ignored cotangent", "ignores-cotangent", "2 * x * dy", "2 * x"),
    ("wrong flag", None, "dy if ctx.keepdim else dy.unsqueeze(ctx.dim)", "dy.unsqueeze(ctx.dim)"),
    ("wrong size", "constant-factor", "2 * x * dy", "2 * x * dy / x.shape[ctx.dim]"),
    ("captured state", None, "ctx.save_for_backward(x)", "SumSquares.kept = (x,)", "ctx.saved_tensors", "SumSquares.kept"),
]
WRAPPED = ["sign", "clipped cotangent", "transposed", "strides ignored", "partial rows", "odd sizes"]
