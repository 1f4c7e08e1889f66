"""A piecewise loss with a number: the Huber loss, summed over rows."""

import torch


class Huber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target, delta):
        if delta <= 0:
            raise ValueError(f"delta must be positive, got {delta}")
        ctx.save_for_backward(x, target)
        ctx.delta = delta
        d = (x - target).abs()
        return torch.where(d < delta, d * d / 2, delta * (d - delta / 2)).sum(-1)

    @staticmethod
    def backward(ctx, dy):
        x, target = ctx.saved_tensors
        d = (x - target).clamp(-ctx.delta, ctx.delta)
        grad = dy.unsqueeze(-1) * d
        return grad, -grad, None


def inputs():
    return torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.randn(5, 4, dtype=torch.float64, requires_grad=True), 0.8


FAULTS = [
    ("sign", "sign", "(grad, -grad, None)", "(grad, grad, None)"),
    ("missing branch", None, "(x - target).clamp(-ctx.delta, ctx.delta)", "(x - target)"),
    ("missing branch", None, "(x - target).clamp(-ctx.delta, ctx.delta)", "(x - target).sign() * ctx.delta"),
    ("wrong operand", None, "(x - target).clamp(-ctx.delta, ctx.delta)", "x.clamp(-ctx.delta, ctx.delta)"),
    ("wrong bound", None, "(x - target).clamp(-ctx.delta, ctx.delta)", "(x - target).clamp(-1, 1)"),
    ("dropped factor", "constant-factor", "dy.unsqueeze(-1) * d", "dy.unsqueeze(-1) * d * 2"),
]
WRAPPED = ["partial rows", "wrong when frozen", "ignored cotangent", "inputs' strides ignored", "odd sizes"]
