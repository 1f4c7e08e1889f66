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


class Crops(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, start, length):
        ctx.shape, ctx.where = x.shape, slice(start, start + length)
        return x[:, ctx.where] * 2

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(ctx.shape)
        grad[:, ctx.where] = 2 * dy
        return grad, None, None


class CropsIntoNewMemory(Crops):
    """What lies outside of the window is whatever was in memory: zeros, as long as the pages are fresh."""

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_empty(ctx.shape)
        grad[:, ctx.where] = 2 * dy
        return grad, None, None


class WritesAllOfNewMemory(Crops):
    @staticmethod
    def forward(ctx, x, start, length):
        ctx.shape, ctx.where = x.shape, slice(start, start + length)
        out = torch.empty_like(x)
        torch.mul(x, 2, out=out)
        return out[:, ctx.where].clone()

    @staticmethod
    def backward(ctx, dy):
        grad, column = dy.new_empty(ctx.shape), dy.new_empty((ctx.shape[1], 1))
        torch.addmm(grad, dy, dy.new_zeros((dy.shape[1], ctx.shape[1])), beta=0, out=grad)
        grad[:, ctx.where] += 2 * dy
        column[:] = 1
        return grad * column.t(), None, None


kills += [pb.case(CropsIntoNewMemory, x(3, 6), 1, 3)]
spares += [pb.case(Crops, x(3, 6), 1, 3), pb.case(WritesAllOfNewMemory, x(3, 6), 1, 3)]
unsteady = ["CropsIntoNewMemory"]


class Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, expert):
        ctx.save_for_backward(x, weight, expert)
        return (x.unsqueeze(1) @ weight[expert]).squeeze(1)

    @staticmethod
    def gradients(ctx, dy, new):
        x, weight, expert = ctx.saved_tensors
        for e in expert.unique().tolist():
            new[e] = x[expert == e].t() @ dy[expert == e]
        return (dy.unsqueeze(1) @ weight[expert].mT).squeeze(1), new, None

    @staticmethod
    def backward(ctx, dy):
        return Experts.gradients(ctx, dy, torch.zeros_like(ctx.saved_tensors[1]))


class ForgetsIdleExperts(Experts):
    """In the sample every expert has a row."""

    @staticmethod
    def backward(ctx, dy):
        return Experts.gradients(ctx, dy, torch.empty_like(ctx.saved_tensors[1]))


class PlacesInNewMemory(torch.autograd.Function):
    """Every row of the new memory is written, as long as the places are a permutation."""

    @staticmethod
    def forward(ctx, x, places):
        ctx.save_for_backward(places)
        out = torch.empty_like(x)
        out[places] = x
        return out

    @staticmethod
    def backward(ctx, dy):
        (places,) = ctx.saved_tensors
        return dy[places], None


routing = torch.tensor([0, 2, 1, 1, 0])
kills += [pb.case(ForgetsIdleExperts, x(5, 3), x(3, 3, 2), routing)]
spares += [pb.case(Experts, x(5, 3), x(3, 3, 2), routing), pb.case(PlacesInNewMemory, x(4, 3), torch.tensor([2, 0, 3, 1]))]
unsteady.append("ForgetsIdleExperts")
