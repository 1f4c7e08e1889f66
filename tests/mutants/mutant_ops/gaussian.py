"""Elementwise with a number: exp(-a x²)."""

import torch


class Gaussian(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        y = torch.exp(-a * x * x)
        ctx.save_for_backward(x, y)
        ctx.a = a
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy * (-2 * ctx.a * x * y), None


def inputs():
    return torch.randn(10, dtype=torch.float64, requires_grad=True), 0.7


FAULTS = [
    ("dropped factor", "constant-factor", "-2 * ctx.a * x * y", "-ctx.a * x * y"),
    ("dropped factor", "scalar-derivative-missing", "-2 * ctx.a * x * y", "-2 * x * y"),
    ("factor twice", "scalar-derivative-missing", "-2 * ctx.a * x * y", "-2 * ctx.a * ctx.a * x * y"),
    ("dropped factor", "missing-factor", "-2 * ctx.a * x * y", "-2 * ctx.a * x"),
    ("dropped factor", "missing-factor", "-2 * ctx.a * x * y", "-2 * ctx.a * y"),
    ("sign", "sign", "-2 * ctx.a * x * y", "2 * ctx.a * x * y"),
    ("bypassed saved tensors", None, "ctx.save_for_backward(x, y)", "ctx.kept = (x, y)", "ctx.saved_tensors", "ctx.kept"),
    ("reference cycle", None, "ctx.a = a", "ctx.a, ctx.result = (a, y)"),
]
WRAPPED = ["absolute cotangent", "shifted", "strides ignored", "inputs' strides ignored", "second backward", "moves the random state"]
