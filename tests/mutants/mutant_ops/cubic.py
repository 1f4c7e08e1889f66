"""With a forward-mode rule: x³."""

import torch


class Cubic(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * dy

    @staticmethod
    def jvp(ctx, dx):
        (x,) = ctx.saved_tensors
        return dx * (3 * x * x)


def inputs():
    return (torch.randn(3, 4, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("wrong jvp", None, "dx * (3 * x * x)", "dx * (2 * x * x)"),
    ("wrong jvp", None, "dx * (3 * x * x)", "dx * (3 * x)"),
    ("wrong power", "missing-factor", "3 * x**2 * dy", "3 * x * dy"),
    ("dropped factor", "constant-factor", "3 * x**2 * dy", "2 * x**2 * dy"),
    ("ignored cotangent", "ignores-cotangent", "3 * x**2 * dy", "3 * x**2"),
    ("wrong operand", None, "3 * x**2 * dy", "3 * dy**2 * x"),
]
WRAPPED = ["sign", "flipped", "written grad_output", "single precision gradient", "last block"]
