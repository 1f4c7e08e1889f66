"""Kills and spares of PB703."""

import torch

import pullback as pb


class TakesCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x * n

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.n, None


class SetsUp(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.n = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.n, None


def x():
    return torch.randn(3, dtype=torch.float64, requires_grad=True)


kills = [pb.case(TakesCtx, x(), 2), pb.case(lambda t: TakesCtx.apply(t, 3), x())]
spares = [pb.case(SetsUp, x(), 2), pb.case(torch.sin, x())]
