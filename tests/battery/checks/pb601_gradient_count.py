"""Kills and spares of PB601."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class ScaleMissesOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, shift):
        ctx.factor = factor
        return x * factor + shift

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class ScaleReturnsOne(ScaleMissesOne):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy * ctx.factor


class ScaleReturnsTooMany(ScaleMissesOne):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None, dy, dy


class Scale(ScaleMissesOne):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None, dy


class ScaleTrailingNones(ScaleMissesOne):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None, dy, None, None


class SetUpScale(torch.autograd.Function):
    @staticmethod
    def forward(x, factor, clip=None):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor


class SetUpScaleRight(SetUpScale):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None, None


class MeanAndCount(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep_sum):
        ctx.save_for_backward(x)
        total = x.sum(0)
        return (total / len(x), total) if keep_sum else total / len(x)

    @staticmethod
    def backward(ctx, d_mean):
        (x,) = ctx.saved_tensors
        return (d_mean / len(x)).expand_as(x), None


class MeanAndCountRight(MeanAndCount):
    @staticmethod
    def backward(ctx, d_mean, d_sum=None):
        (x,) = ctx.saved_tensors
        return (d_mean / len(x) + (0 if d_sum is None else d_sum)).expand_as(x), None


class ForgetsFlagged(MeanAndCountRight):
    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        if len(grads) == 2:
            return (grads[0] / len(x) + grads[1]).expand_as(x)
        return (grads[0] / len(x)).expand_as(x), None


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class TwoOutputsRight(TwoOutputs):
    @staticmethod
    def backward(ctx, dy, dz):
        return dy * 2 + dz * 3


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, *xs):
        ctx.save_for_backward(weight)
        return sum(xs) * weight

    @staticmethod
    def backward(ctx, dy):
        (weight,) = ctx.saved_tensors
        return None, dy * weight


class GatheredRight(Gathered):
    @staticmethod
    def forward(ctx, weight, *xs):
        total = sum(xs)
        ctx.save_for_backward(weight, total)
        ctx.count = len(xs)
        return total * weight

    @staticmethod
    def backward(ctx, dy):
        weight, total = ctx.saved_tensors
        return dy * total, *([dy * weight] * ctx.count)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def calls_scale(a, b):
    return ScaleMissesOne.apply(a, 2.0, b).sum()


kills = [
    pb.case(ScaleMissesOne, x(3), 2.0, x(3)),
    pb.case(ScaleReturnsOne, x(3), 2.0, x(3)),
    pb.case(ScaleReturnsTooMany, x(3), 2.0, x(3)),
    pb.case(SetUpScale, x(2, 3), 2.0, None),
    pb.case(MeanAndCount, x(4, 2), True),
    pb.case(MeanAndCount, x(4, 2), False),
    pb.case(ForgetsFlagged, x(4, 2), False),
    pb.case(TwoOutputs, x(3)),
    pb.case(Gathered, x(3), x(3), x(3)),
    pb.case(calls_scale, x(3), x(3)),
]
spares = [
    pb.case(Scale, x(3), 2.0, x(3)),
    pb.case(ScaleTrailingNones, x(3), 2.0, x(3)),
    pb.case(SetUpScaleRight, x(2, 3), 2.0, None),
    pb.case(MeanAndCountRight, x(4, 2), True),
    pb.case(MeanAndCountRight, x(4, 2), False),
    pb.case(TwoOutputsRight, x(3)),
    pb.case(GatheredRight, x(3), x(3), x(3)),
]


class Stretch(torch.autograd.Function):
    """Whoever passes the factor is told of one gradient too few."""

    @staticmethod
    def forward(ctx, x, factor=2.0):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor


class StretchCounted(Stretch):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class ShiftSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, by=0.5, sign=1):
        return x + sign * by

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy, None, None


kills.append(pb.case(Stretch, x(3)))
spares += [pb.case(StretchCounted, x(3)), pb.case(StretchCounted, x(3), 3.0), pb.case(ShiftSetup, x(3)), pb.case(ShiftSetup, x(3), 0.25)]
