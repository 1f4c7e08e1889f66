"""Kills and spares of PB602."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def scaled_gradients(dy, x, w):
    return dy * w, (dy * x).sum(0)


class ScaleReturnsPairs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        return scaled_gradients(dy, *ctx.saved_tensors), None


class ScaleReturnsList(ScaleReturnsPairs):
    @staticmethod
    def backward(ctx, dy):
        return list(scaled_gradients(dy, *ctx.saved_tensors))


class ScaleSwaps(ScaleReturnsPairs):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        grad_x, grad_w = scaled_gradients(dy, *ctx.saved_tensors)
        return grad_w, grad_x


class ScaleReturnsNumber(ScaleReturnsPairs):
    @staticmethod
    def backward(ctx, dy):
        grad_x, grad_w = scaled_gradients(dy, *ctx.saved_tensors)
        return grad_x, float(grad_w.sum())


class Scale(ScaleReturnsPairs):
    @staticmethod
    def backward(ctx, dy):
        return scaled_gradients(dy, *ctx.saved_tensors)


class ScaleLetsEngineSum(ScaleReturnsPairs):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, exponent, x):
        ctx.exponent = exponent
        ctx.save_for_backward(x)
        return x**exponent

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * ctx.exponent * x ** (ctx.exponent - 1), None


class PowerRight(Power):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return None, dy * ctx.exponent * x ** (ctx.exponent - 1)


class RowNorm(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.square().sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class RowNormRight(RowNorm):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * dy[..., None] * x


class Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, index, table):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return None, dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index, dy)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def swaps_inside(a, b):
    return ScaleSwaps.apply(a, b) + 1


kills = [
    pb.case(ScaleReturnsPairs, x(3, 4), x(4)),
    pb.case(ScaleReturnsList, x(3, 4), x(4)),
    pb.case(ScaleSwaps, x(3, 4), x(4)),
    pb.case(ScaleReturnsNumber, x(3, 4), x(4)),
    pb.case(Power, 3, x(4)),
    pb.case(RowNorm, x(3, 4)),
    pb.case(swaps_inside, x(3, 4), x(4)),
]
spares = [
    pb.case(Scale, x(3, 4), x(4)),
    pb.case(ScaleLetsEngineSum, x(3, 4), x(4)),
    pb.case(PowerRight, 3, x(4)),
    pb.case(RowNormRight, x(3, 4)),
    pb.case(RowNormRight, x(2, 3, 4)),
    pb.case(Embed, torch.tensor([0, 2, 2]), x(4, 3)),
]
