"""Reduction that keeps its output: log Σ exp x over the last dimension."""

import torch


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.logsumexp(x, -1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy.unsqueeze(-1) * torch.exp(x - y.unsqueeze(-1))


def inputs():
    return (torch.randn(3, 6, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("dropped factor", None, "torch.exp(x - y.unsqueeze(-1))", "torch.exp(x)"),
    ("missing shift", None, "torch.exp(x - y.unsqueeze(-1))", "torch.exp(x) / (1 + torch.exp(x).sum(-1, keepdim=True))"),
    ("nan at large values", None, "torch.exp(x - y.unsqueeze(-1))", "(torch.exp(x) / torch.exp(x).sum(-1, keepdim=True))"),
    ("ignored cotangent", "ignores-cotangent", "dy.unsqueeze(-1)", "dy.flatten()[0]"),
    ("ignored cotangent", "ignores-cotangent", "dy.unsqueeze(-1)", "dy.mean()"),
]
WRAPPED = ["doubled", "low precision inside", "written grad_output", "inputs' strides ignored", "partial rows", "last block"]
