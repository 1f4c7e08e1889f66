"""Helpers that the Functions of the other file import."""

import torch


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def in_place_rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    new = a * cos - b * sin
    b.copy_(a * sin + b * cos)
    a.copy_(new)
    return x


def keep(ctx, *tensors):
    ctx.save_for_backward(*tensors)


def gate_backward(ctx, dy):
    x, g = ctx.saved_tensors
    s = torch.sigmoid(g)
    return dy * s, dy * x * s * (1 - s)


def shifted(x, by, inplace=False):
    if inplace:
        return x.add_(by)
    return x + by


class ShiftsWhatItSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x + 1
        ctx.save_for_backward(x, y)
        return y.log()

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return 2 * x * dy / shifted(y, 1e-6, True)  # expect: PB104


class ShiftsAsItIsTold(ShiftsWhatItSaved):
    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return 2 * x * dy / shifted(y, 1e-6, inplace=dy.is_contiguous())  # expect: PB104
