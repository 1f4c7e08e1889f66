"""Kills and spares of PB625 with sizes that are equal by chance in two tensors, more rows than a grid has blocks, and cases of a rank."""

import torch

import pullback as pb


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()


kills = []
spares = []


class Weighted(torch.autograd.Function):
    """Values averaged with weights that keys and a query give; values may be wider than keys."""

    @staticmethod
    def forward(ctx, query, key, value):
        p = (query @ key.mT).softmax(-1)
        ctx.save_for_backward(query, key, value, p)
        return p @ value

    @staticmethod
    def backward(ctx, dy):
        query, key, value, p = ctx.saved_tensors
        return Weighted.gradients(query, key, value, p, dy, value.shape[-1])

    @staticmethod
    def gradients(query, key, value, p, dy, width):
        dp = dy[..., :width] @ value[..., :width].mT
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        return ds @ key, ds.mT @ query, p.mT @ dy


class WeightedAsWideAsKeys(Weighted):
    @staticmethod
    def backward(ctx, dy):
        query, key, value, p = ctx.saved_tensors
        return Weighted.gradients(query, key, value, p, dy, key.shape[-1])


kills.append(pb.case(WeightedAsWideAsKeys, x(2, 4), x(3, 4), x(3, 4)))
spares.append(pb.case(Weighted, x(2, 4), x(3, 4), x(3, 4)))


class AddsFirstColumns(torch.autograd.Function):
    """Takes a bias wider than the input and leaves the rest of it out; no size of the output follows that of the bias."""

    @staticmethod
    def forward(ctx, x, bias):
        ctx.width = bias.shape[-1]
        return x + bias[..., : x.shape[-1]]

    @staticmethod
    def backward(ctx, dy):
        return dy, dy.new_zeros(dy.shape[0], ctx.width).copy_(dy[..., :1].expand(-1, ctx.width)) if ctx.width != dy.shape[-1] else dy


spares.append(pb.case(AddsFirstColumns, x(3, 4), x(3, 4)))


class Scaled(torch.autograd.Function):
    """Rows go to blocks of their own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


class ScaledInOneGrid(Scaled):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        grad[:65_535] = 2 * x[:65_535] * dy[:65_535]
        return grad


kills.append(pb.case(ScaledInOneGrid, x(5, 4)))
spares.append(pb.case(Scaled, x(5, 4)))


class PerChannel(torch.autograd.Function):
    """Divides by one scale a leading entry."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x / scale.view(-1, *[1] * (x.dim() - 1))

    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return PerChannel.gradients(x, scale, dy, scale.view(-1, *[1] * (x.dim() - 1)))

    @staticmethod
    def gradients(x, scale, dy, shaped):
        return dy / shaped, -(dy * x).flatten(1).sum(1) / scale**2


class PerChannelOfImages(PerChannel):
    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return PerChannel.gradients(x, scale, dy, scale.view(-1, 1, 1, 1) if x.dim() == 4 else scale)


class PerChannelByCase(PerChannel):
    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return PerChannel.gradients(x, scale, dy, scale.view(-1, 1, 1, 1) if x.dim() == 4 else scale.view(-1, *[1] * (x.dim() - 1)))


def scale():
    return torch.tensor([0.5, 1.5, 2.0, 0.75], dtype=torch.float64).requires_grad_()


kills.append(pb.case(PerChannelOfImages, x(4, 3, 2, 2), scale()))
spares.append(pb.case(PerChannelByCase, x(4, 3, 2, 2), scale()))
