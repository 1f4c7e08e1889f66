"""Normalisation by the root mean square; an intermediate kept as an output-like residual, setup_context style."""

import torch


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(x, w, eps):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.eps = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.eps)
        g = dy * w
        dx = scale * g - x * scale**3 * (g * x).mean(-1, keepdim=True)
        dw = (dy * x * scale).sum(0)
        return dx, dw, None


def inputs():
    return torch.randn(3, 6, dtype=torch.float64, requires_grad=True), torch.rand(6, dtype=torch.float64).add_(0.5).requires_grad_(), 0.05


FAULTS = [
    ("detached intermediate", "detached-intermediate", "scale * g - x * scale**3 * (g * x).mean(-1, keepdim=True)", "scale * g"),
    ("wrong reduction", None, "(g * x).mean(-1, keepdim=True)", "(g * x).sum(-1, keepdim=True)"),
    ("wrong power", None, "scale**3", "scale**2"),
    ("missing epsilon", "misplaced-eps", "x.square().mean(-1, keepdim=True) + ctx.eps", "x.square().mean(-1, keepdim=True)"),
    ("wrong reduction", "mean-for-sum", "(dy * x * scale).sum(0)", "(dy * x * scale).mean(0)"),
    ("dropped factor", "missing-factor", "g = dy * w", "g = dy * torch.ones_like(w)"),
]
WRAPPED = ["sign", "doubled", "written grad_output", "stale gradient", "odd sizes", "single precision gradient"]
