"""Kills and spares of PB804."""

import torch

import pullback as pb

settings = {"device": "cuda"}


class Synchronises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = int(x.numel() + 0 * x.sum().item())
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class IndexesByMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = dy.clone()
        dx[x.nonzero()] *= 1
        return dx * (x > 0)


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, dy, 0)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(Synchronises, x(4)), pb.case(IndexesByMask, x(4))]
spares = [pb.case(Relu, x(4)), pb.case(Relu, x(4, 3))]
