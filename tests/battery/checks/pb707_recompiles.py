"""Kills and spares of PB707."""

import torch

import pullback as pb


class BranchesOnRows(torch.autograd.Function):
    """Unrolls a loop over the rows."""

    @staticmethod
    def forward(ctx, x):
        total = torch.zeros_like(x[0])
        for row in x:
            total = total + row
        ctx.rows = x.shape[0]
        return total

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.rows, *dy.shape).clone()


class Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.rows = x.shape[0]
        return x.sum(0)

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.rows, *dy.shape).clone()


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(BranchesOnRows, x(3, 2))]
spares = [pb.case(Sums, x(3, 2))]
