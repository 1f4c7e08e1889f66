"""Kills and spares of PB501 with other flags, words and numbers among the arguments."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class Loss(torch.autograd.Function):
    """What is summed is said by a word that the sample leaves at its default."""

    @staticmethod
    def forward(ctx, x, target, reduction="mean", delta=1.0):
        gap = x - target
        ctx.save_for_backward(gap)
        ctx.reduction, ctx.delta = reduction, delta
        loss = gap.square() * delta
        if reduction == "mean":
            return loss.mean()
        return loss.sum() if reduction == "sum" else loss

    @staticmethod
    def backward(ctx, dy):
        (gap,) = ctx.saved_tensors
        grad = dy * 2 * gap * ctx.delta
        if ctx.reduction == "mean":
            grad = grad / gap.numel()
        return grad, -grad, None, None


class AlwaysMean(Loss):
    @staticmethod
    def backward(ctx, dy):
        (gap,) = ctx.saved_tensors
        grad = dy * 2 * gap * ctx.delta / gap.numel()
        return grad, -grad, None, None


class Norm(torch.autograd.Function):
    """A flag and an order that are left at their defaults."""

    @staticmethod
    def forward(x, squared=False, order=2):
        if order == 1:
            return x.abs().sum(-1)
        total = x.square().sum(-1)
        return total if squared else total.sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.squared, ctx.order = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        if ctx.order == 1:
            return dy[..., None] * x.sign(), None, None
        return dy[..., None] * (2 * x if ctx.squared else x / y[..., None]), None, None


class NormForgetsFlag(Norm):
    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        if ctx.order == 1:
            return dy[..., None] * x.sign(), None, None
        return dy[..., None] * x / y[..., None], None, None


class NormForgetsOrder(Norm):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * (2 * x if ctx.squared else x / y[..., None]), None, None


class Relaxed(torch.autograd.Function):
    """With the flag it is a straight-through estimator, on purpose."""

    @staticmethod
    def forward(ctx, x, hard=False, dim=-1):
        y = x.softmax(dim)
        ctx.save_for_backward(y)
        ctx.dim = dim
        if hard:
            return torch.zeros_like(y).scatter_(dim, y.argmax(dim, keepdim=True), 1.0)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return y * (dy - (dy * y).sum(ctx.dim, keepdim=True)), None, None


class OnlyMean(Loss):
    """Other words are refused, in backward."""

    @staticmethod
    def backward(ctx, dy):
        if ctx.reduction != "mean":
            raise NotImplementedError("only the mean has a gradient")
        return Loss.backward(ctx, dy)


class Freezes(torch.autograd.Function):
    """Nothing is saved for inference."""

    @staticmethod
    def forward(ctx, x, training=True):
        if training:
            ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy, None


def fixed(*shape):
    return torch.linspace(-1.3, 1.7, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


kills += [
    pb.case(AlwaysMean, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(AlwaysMean, fixed(3, 4), fixed(4, 3).mT.detach(), "mean", 0.5),
    pb.case(NormForgetsFlag, fixed(3, 4)),
    pb.case(NormForgetsOrder, fixed(3, 4)),
]
spares += [
    pb.case(Loss, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(Loss, fixed(3, 4), fixed(4, 3).mT.detach(), "sum"),
    pb.case(Norm, fixed(3, 4)),
    pb.case(Relaxed, fixed(3, 4)),
    pb.case(OnlyMean, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(Freezes, fixed(3, 4)),
]


class Tempered(torch.autograd.Function):
    """Scores that a cap bends, where one is given; a scale has its usual value unless one is given."""

    @staticmethod
    def forward(ctx, x, cap=None, scale=None, smoothing=0.0):
        scale = scale or x.shape[-1] ** -0.5
        bent = x * scale if cap is None else cap * torch.tanh(x * scale / cap)
        ctx.save_for_backward(bent)
        ctx.cap, ctx.scale, ctx.smoothing = cap, scale, smoothing
        return (1 - smoothing) * bent + smoothing * bent.mean(-1, keepdim=True)

    @staticmethod
    def gradient(ctx, dy, cap, scale, smoothing):
        (bent,) = ctx.saved_tensors
        dy = (1 - smoothing) * dy + smoothing * dy.mean(-1, keepdim=True)
        bend = 1 if cap is None else 1 - (bent / cap) ** 2
        return dy * bend * scale, None, None, None

    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, ctx.scale, ctx.smoothing)


class ForgetsCap(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, None, ctx.scale, ctx.smoothing)


class GuessesScale(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, dy.shape[-1] ** -0.5, ctx.smoothing)


class ForgetsSmoothing(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, ctx.scale, 0.0)


class Reduced(torch.autograd.Function):
    """The word that nobody compares with is the rest: no reduction."""

    @staticmethod
    def forward(ctx, x, reduction="sum"):
        ctx.save_for_backward(x)
        ctx.reduction = reduction
        y = x.exp()
        return y.sum() if reduction == "sum" else y.mean() if reduction == "mean" else y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = dy * x.exp()
        return dx / x.numel() if ctx.reduction == "mean" else dx, None


class ReducedByFirst(Reduced):
    @staticmethod
    def backward(ctx, dy):
        return Reduced.backward(ctx, dy.reshape(-1)[0])


class ScaledRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, extra, row_weight=None):
        ctx.save_for_backward(row_weight)
        y = x + extra
        return y if row_weight is None else y * row_weight.unsqueeze(-1)

    @staticmethod
    def backward(ctx, dy):
        (row_weight,) = ctx.saved_tensors
        dx = dy if row_weight is None else dy * row_weight.unsqueeze(-1)
        return dx, dx, None


class ScalesOnlyFirst(ScaledRows):
    @staticmethod
    def backward(ctx, dy):
        return ScaledRows.backward(ctx, dy)[0], dy, None


class TakesNumberOnly(torch.autograd.Function):
    """What is None in the sample is meant to be a tensor: a number in its place is another matter."""

    @staticmethod
    def forward(ctx, x, shift=None):
        ctx.shifted = shift is not None
        return x.clone() if shift is None else x + shift

    @staticmethod
    def backward(ctx, dy):
        return dy, dy.sum(0) if ctx.shifted else None


kills += [
    pb.case(ForgetsCap, fixed(3, 4)),
    pb.case(ForgetsCap, fixed(3, 4), None, 0.3),
    pb.case(GuessesScale, fixed(3, 4), None, None),
    pb.case(ForgetsSmoothing, fixed(3, 4)),
    pb.case(ReducedByFirst, fixed(3, 4)),
    pb.case(ScalesOnlyFirst, fixed(3, 4), fixed(3, 4)),
]
spares += [
    pb.case(Tempered, fixed(3, 4)),
    pb.case(Tempered, fixed(3, 4), None, None, 0.0),
    pb.case(Reduced, fixed(3, 4)),
    pb.case(ScaledRows, fixed(3, 4), fixed(3, 4)),
    pb.case(TakesNumberOnly, fixed(3, 4), None),
]


class RoundsInRange(torch.autograd.Function):
    """A staircase over the range of the input. In half precision its steps are as small as rounding, and it looks like a slope."""

    @staticmethod
    def forward(ctx, v, halve):
        low, step = v.min(), (v.max() - v.min()) / 255
        rounded = ((v - low) / step).round() * step + low
        return rounded.half() if halve else rounded

    @staticmethod
    def backward(ctx, dy):
        return dy, None


spares.append(pb.case(RoundsInRange, x(3, 4), True))


class MovingSum(torch.autograd.Function):
    """Sums over a window whose width the sample leaves at its default."""

    @staticmethod
    def forward(ctx, x, window=2):
        ctx.window, ctx.length = window, x.shape[-1]
        return x.unfold(-1, window, 1).sum(-1)

    @staticmethod
    def spread(dy, window, length):
        grad = dy.new_zeros(*dy.shape[:-1], length)
        for i in range(window):
            grad[..., i : length - window + 1 + i] += dy
        return grad

    @staticmethod
    def backward(ctx, dy):
        return MovingSum.spread(dy, ctx.window, ctx.length), None


class WindowOfTwo(MovingSum):
    @staticmethod
    def backward(ctx, dy):
        return MovingSum.spread(dy, 2, ctx.length), None


class OnlyTwo(MovingSum):
    @staticmethod
    def backward(ctx, dy):
        if ctx.window != 2:
            raise ValueError("only windows of two have a gradient")
        return MovingSum.spread(dy, 2, ctx.length), None


class SumOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keepdim=True):
        ctx.shape, ctx.keepdim = x.shape, keepdim
        return x.sum(-1, keepdim=keepdim)

    @staticmethod
    def backward(ctx, dy):
        return (dy if ctx.keepdim else dy[..., None]).expand(ctx.shape), None


class KeepsTheDim(SumOfRows):
    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.shape), None


class ByDegree(torch.autograd.Function):
    """Cases told apart by a code: the one after the last is none."""

    @staticmethod
    def forward(ctx, x, degree=2):
        ctx.save_for_backward(x)
        ctx.degree = degree
        return x if degree == 1 else x * x if degree == 2 else x * x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * {1: torch.ones_like, 2: lambda t: 2 * t, 3: lambda t: 3 * t * t}[ctx.degree](x), None


kills += [pb.case(WindowOfTwo, fixed(3, 6)), pb.case(KeepsTheDim, fixed(3, 6))]
spares += [pb.case(MovingSum, fixed(3, 6)), pb.case(OnlyTwo, fixed(3, 6)), pb.case(SumOfRows, fixed(3, 6)), pb.case(ByDegree, fixed(3, 6))]
