"""Kills and spares of PB618."""

import itertools
import os

import torch

import pullback as pb

COUNTER = itertools.count(1)


class Shuffles(torch.autograd.Function):
    """Sums the gradient of the scale in an order that changes, as atomic additions do."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        order = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(next(COUNTER)))
        products = (dy * x).flatten()[order].float()
        total = torch.zeros((), dtype=torch.float32)
        for block in products.split(max(1, x.numel() // 64)):
            total = total + block.sum()
        return dy * scale, total.to(scale.dtype)


class OwnSeed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "big"))) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class Fixed(Shuffles):
    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return dy * scale, (dy * x).sum().view(scale.shape)


class Draws(OwnSeed):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x * mask


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [pb.case(Shuffles, x(8, 4, dtype=torch.float32), x(dtype=torch.float32)), pb.case(OwnSeed, x(40))]
spares = [pb.case(Fixed, x(8, 4), x()), pb.case(Draws, x(40))]
