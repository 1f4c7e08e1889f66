"""Kills and spares of PB625 where one axis alone changes, or one of size 1 grows."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class Pools(torch.autograd.Function):
    """Means of blocks of 2 by 2: no odd size is taken."""

    @staticmethod
    def forward(ctx, image):
        n, h, w = ctx.shape = image.shape
        return image.view(n, h // 2, 2, w // 2, 2).mean((2, 4))

    @staticmethod
    def backward(ctx, dy):
        return (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)


class PoolsSquares(Pools):
    @staticmethod
    def backward(ctx, dy):
        n, h, w = ctx.shape
        grad = dy.new_zeros((n, max(h, w), max(h, w)))
        rows = min(h, w)
        grad[:, :rows, :w] = (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :rows]
        return grad[:, :h, :w].clone()


class PoolsUpTo32(Pools):
    @staticmethod
    def backward(ctx, dy):
        grad = (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)
        grad[:, 32:] = 0
        return grad


class WeightsChannels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, weight):
        ctx.save_for_backward(image, weight)
        return image * weight.mean(1, keepdim=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        image, weight = ctx.saved_tensors
        channels = weight.shape[1]
        return dy * weight.mean(1, keepdim=True), (dy * image).sum(1, keepdim=True).expand_as(weight) / channels


class WeightsOneChannel(WeightsChannels):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        image, weight = ctx.saved_tensors
        return dy * weight.mean(1, keepdim=True), dy * image


class Masks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, mask):
        ctx.save_for_backward(image, mask)
        return image * mask

    @staticmethod
    def backward(ctx, dy):
        image, mask = ctx.saved_tensors
        return dy * mask, (dy * image).sum_to_size(mask.shape)


class MasksFirstChannel(Masks):
    @staticmethod
    def backward(ctx, dy):
        image, mask = ctx.saved_tensors
        return dy * mask, (dy * image)[:, :1]


class Strides(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stride):
        ctx.stride, ctx.size = stride, x.shape[-1]
        return x[..., ::stride] * 2

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros((*dy.shape[:-1], ctx.size))
        grad[..., :: ctx.stride] = 2 * dy
        return grad, None


class StridesOnlyWhereItDivides(Strides):
    @staticmethod
    def backward(ctx, dy):
        spread = torch.stack((2 * dy, torch.zeros_like(dy)), -1).flatten(-2)
        return spread[..., :-1], None


class FixedPoint(torch.autograd.Function):
    """Converges for small w only; a larger matrix of entries as large has a larger norm."""

    @staticmethod
    def forward(ctx, w, x):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w, z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        solved = torch.linalg.solve(torch.eye(len(z), dtype=z.dtype, device=z.device) - w.mT * slope, dy)
        return (solved * slope)[:, None] * z, solved * slope


class Corner(torch.autograd.Function):
    """Takes a rectangle, and leaves out what is beyond the square."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.diagonal().exp().sum()

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy * torch.diag(a.diagonal().exp())


kills += [
    pb.case(PoolsSquares, x(2, 4, 4)),
    pb.case(PoolsUpTo32, x(2, 4, 6)),
    pb.case(WeightsOneChannel, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(MasksFirstChannel, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(StridesOnlyWhereItDivides, x(3, 5), 2),
]
spares += [
    pb.case(Pools, x(2, 4, 4)),
    pb.case(WeightsChannels, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(Masks, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(Strides, x(3, 5), 2),
    pb.case(FixedPoint, (x(4, 4).detach() * 0.2).requires_grad_(), x(4)),
    pb.case(Corner, x(3, 3)),
]


class Slopes(torch.autograd.Function):
    """One slope for all channels, or one for each, as the code asks."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0, x, Slopes.spread(slope) * x)

    @staticmethod
    def spread(slope):
        return slope if slope.numel() == 1 else slope[:, None]

    @staticmethod
    def backward(ctx, dy):
        x, slope = ctx.saved_tensors
        below = torch.where(x > 0, 0, x) * dy
        return torch.where(x > 0, dy, Slopes.spread(slope) * dy), (below.sum((0, 2)) if slope.numel() > 1 else below.sum()).reshape(slope.shape)


class SlopesByChannel(Slopes):
    @staticmethod
    def backward(ctx, dy):
        x, slope = ctx.saved_tensors
        below = torch.where(x > 0, 0, x) * dy
        return torch.where(x > 0, dy, Slopes.spread(slope) * dy), below.sum((0, 2)).reshape(slope.shape)


class SlopesByMean(Slopes):
    @staticmethod
    def backward(ctx, dy):
        x, slope = ctx.saved_tensors
        below = torch.where(x > 0, 0, x) * dy
        return torch.where(x > 0, dy, Slopes.spread(slope) * dy), below.sum((0, 2)) if len(slope) != 1 else below.mean().reshape(1)


class SlopesForChannels(SlopesByChannel):
    """Takes one slope by broadcasting, of which nobody spoke."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0, x, slope[:, None] * x)

    @staticmethod
    def backward(ctx, dy):
        x, slope = ctx.saved_tensors
        below = torch.where(x > 0, 0, x) * dy
        return torch.where(x > 0, dy, slope[:, None] * dy), below.sum((0, 2)).reshape(slope.shape)


kills += [pb.case(SlopesByChannel, x(2, 3, 4), x(3)), pb.case(SlopesByMean, x(2, 3, 4), x(3))]
spares += [pb.case(Slopes, x(2, 3, 4), x(3)), pb.case(SlopesForChannels, x(2, 3, 4), x(3))]


class Interpolates(torch.autograd.Function):
    """Between the points of a table along every axis of the positions; the sample has one axis."""

    AXES = slice(0, 1)

    @staticmethod
    def forward(ctx, at, table):
        cell = at.detach().floor()
        part, index = at - cell, cell.long() % (len(table) - 1)
        ctx.save_for_backward(part, table, index)
        return (table[index] + part[..., None] * (table[index + 1] - table[index])).sum(1)

    @classmethod
    def backward(cls, ctx, dy):
        part, table, index = ctx.saved_tensors
        grad_table = torch.zeros_like(table)
        rows = dy[:, None].expand(*part.shape, dy.shape[-1])
        grad_table.index_put_((index,), rows * (1 - part)[..., None], accumulate=True)
        grad_table.index_put_((index + 1,), rows * part[..., None], accumulate=True)
        slope = torch.zeros_like(part)
        slope[:, cls.AXES] = (rows * (table[index + 1] - table[index])).sum(-1)[:, cls.AXES]
        return slope, grad_table


class InterpolatesAlongAll(Interpolates):
    AXES = slice(None)


class Composites(torch.autograd.Function):
    """Colours (cameras, layers, 3) behind one another; each camera has its own opacities (cameras, layers)."""

    @staticmethod
    def forward(ctx, colors, opacities):
        if opacities.shape != colors.shape[:2]:
            raise ValueError("one opacity for each colour")
        image = (opacities[..., None] * colors).sum(1)
        ctx.save_for_backward(colors, opacities, image)
        return image * image

    @classmethod
    def backward(cls, ctx, dy):
        colors, opacities, image = ctx.saved_tensors
        dy = 2 * dy * cls.of_camera(image)
        return opacities[..., None] * dy[:, None], (colors * dy[:, None]).sum(-1)

    @staticmethod
    def of_camera(image):
        return image[:1]


class CompositesEach(Composites):
    @staticmethod
    def of_camera(image):
        return image


class BiasedImages(torch.autograd.Function):
    """A bias (1, channels) for images (batch, rows, channels): it stays one when the batch of one grows."""

    @staticmethod
    def forward(ctx, image, bias):
        return image + bias

    @staticmethod
    def backward(ctx, dy):
        return dy, dy.sum((0, 1))[None]


kills.append(pb.case(Interpolates, (3 * torch.rand(4, 1, dtype=torch.float64)).requires_grad_(), x(6, 2)))
spares.append(pb.case(InterpolatesAlongAll, (3 * torch.rand(4, 1, dtype=torch.float64)).requires_grad_(), x(6, 2)))
kills.append(pb.case(Composites, x(1, 4, 3), x(1, 4)))
spares.append(pb.case(CompositesEach, x(1, 4, 3), x(1, 4)))
spares.append(pb.case(BiasedImages, x(1, 7, 4), x(1, 4)))
spares.append(pb.case(BiasedImages, x(1, 3, 4), x(1, 4)))
