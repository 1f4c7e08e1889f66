"""Kills and spares of PB708."""

import torch

import pullback as pb


class StraightThrough(torch.autograd.Function):
    __pullback__ = {"exact": False, "reason": "straight-through estimator"}

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, dy):
        return dy


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(StraightThrough, x(3))]
spares = [pb.case(Doubles, x(3))]
