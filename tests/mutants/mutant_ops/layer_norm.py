"""Normalisation over rows with an affine map."""

import torch


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, eps=1e-5):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w)
        ctx.eps = eps
        return centred * scale * w + b

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + ctx.eps)
        n = centred * scale
        g = dy * w
        through_mean = g.mean(-1, keepdim=True)
        through_scale = n * (g * n).mean(-1, keepdim=True)
        return scale * (g - through_mean - through_scale), (dy * n).sum(0), dy.sum(0), None


def inputs():
    return (
        torch.randn(3, 6, dtype=torch.float64, requires_grad=True),
        torch.rand(6, dtype=torch.float64).add_(0.5).requires_grad_(),
        torch.randn(6, dtype=torch.float64, requires_grad=True),
        0.05,
    )


FAULTS = [
    ("detached intermediate", "detached-intermediate", "g - through_mean - through_scale", "g - through_mean"),
    ("detached intermediate", "detached-intermediate", "g - through_mean - through_scale", "g - through_scale"),
    ("dropped factor", "missing-factor", "g = dy * w", "g = dy * 1.0"),
    ("missing epsilon", "misplaced-eps", "ctx.eps = eps", "ctx.eps = 0.0"),
    ("misplaced epsilon", "misplaced-eps", "ctx.eps = eps", "ctx.eps = eps * eps"),
    ("dropped factor", None, "(dy * n).sum(0)", "(dy * centred).sum(0)"),
    ("wrong reduction", "mean-for-sum", "dy.sum(0)", "dy.mean(0)"),
]
WRAPPED = ["wrong when frozen", "ignored cotangent", "low precision inside", "partial rows", "strides ignored", "second backward"]
