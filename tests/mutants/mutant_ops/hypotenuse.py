"""Two inputs, setup_context: sqrt(a² + b²)."""

import torch


class Hypotenuse(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return torch.sqrt(a * a + b * b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        root = torch.sqrt(a * a + b * b)
        return dy * a / root, dy * b / root


def inputs():
    return tuple(torch.rand(3, 4, dtype=torch.float64).add_(0.5).requires_grad_() for _ in range(2))


FAULTS = [
    ("swapped gradients", "swapped-gradients", "(dy * a / root, dy * b / root)", "(dy * b / root, dy * a / root)"),
    ("dropped factor", "missing-factor", "dy * b / root", "dy * b"),
    ("dropped factor", "missing-factor", "dy * a / root", "dy / root"),
    ("wrong operand", "wrong-operand", "root = torch.sqrt(a * a + b * b)", "root = torch.sqrt(a * a + a * a)"),
    ("missing gradient", None, "(dy * a / root, dy * b / root)", "(dy * a / root, None)"),
    ("wrong gradient count", None, "(dy * a / root, dy * b / root)", "(dy * a / root, dy * b / root, dy)"),
]
WRAPPED = ["wrong when frozen", "strides ignored", "written grad_output", "squared cotangent", "last block", "single precision gradient"]
