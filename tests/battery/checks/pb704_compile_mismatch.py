"""Kills and spares of PB704."""

import torch

import pullback as pb


class AsksTheCompiler(torch.autograd.Function):
    """Takes a short cut while it is traced, as a kernel with a fallback may, and the fallback is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        if torch.compiler.is_compiling():
            return dy * x
        return dy * x.exp()


class Cubes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return n * x**3, x + 1

    @staticmethod
    def backward(ctx, dy, dz):
        (x,) = ctx.saved_tensors
        return 3 * ctx.n * dy * x**2 + dz, None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(AsksTheCompiler, x(3))]
spares = [pb.case(Cubes, x(3), 2.0)]
