"""Kills and spares of PB705."""

import torch

import pullback as pb


class ReadsNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2.0 if x.detach().numpy().sum() > -1e9 else 3.0
        torch.compiler.is_compiling() and torch._dynamo.graph_break()
        return x * ctx.factor

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor


class Traced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(ReadsNumber, x(3))]
spares = [pb.case(Traced, x(3))]
