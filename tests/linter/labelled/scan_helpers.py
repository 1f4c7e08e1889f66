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
