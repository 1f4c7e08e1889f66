"""Two outputs: r cos t and r sin t, setup_context style."""

import torch


class Polar(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(r, t):
        return r * torch.cos(t), r * torch.sin(t)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dx, dy):
        r, t = ctx.saved_tensors
        c, s = torch.cos(t), torch.sin(t)
        return dx * c + dy * s, r * (dy * c - dx * s)


def inputs():
    return torch.rand(8, dtype=torch.float64).add_(0.5).requires_grad_(), torch.randn(8, dtype=torch.float64, requires_grad=True)


FAULTS = [
    ("sign", "sign", "dy * c - dx * s", "dy * c + dx * s"),
    ("ignored output", "output-ignored", "dx * c + dy * s", "dx * c"),
    ("ignored output", "output-ignored", "dy * c - dx * s", "dy * c"),
    ("output counted twice", "output-counted-twice", "dx * c + dy * s", "dx * c + 2 * dy * s"),
    ("dropped factor", "missing-factor", "r * (dy * c - dx * s)", "(dy * c - dx * s)"),
    ("wrong operand", "swapped-gradients", "dx * c + dy * s", "dy * c + dx * s"),
    ("undefined cotangent", None, "ctx.save_for_backward(*inputs)", "ctx.set_materialize_grads(False); ctx.save_for_backward(*inputs)"),
    ("swapped gradients", "swapped-gradients", "(dx * c + dy * s, r * (dy * c - dx * s))", "(r * (dy * c - dx * s), dx * c + dy * s)"),
]
WRAPPED = ["wrong when frozen", "strides ignored", "written grad_output", "moves the random state"]
