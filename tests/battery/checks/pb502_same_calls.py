"""Kills and spares of PB502 where an argument says the same in other words, or switches something on."""

import math

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class DropsAfterSoftmax(torch.autograd.Function):
    """Nothing is dropped as long as the rate is 0, as in every test."""

    @staticmethod
    def forward(ctx, scores, keep, rate=0.0):
        p = torch.softmax(scores, -1)
        kept = p * keep / (1 - rate) if rate > 0 else p
        ctx.save_for_backward(p, kept, keep)
        ctx.rate = rate
        return kept

    @staticmethod
    def backward(ctx, dy):
        _, kept, _ = ctx.saved_tensors
        return kept * (dy - (dy * kept).sum(-1, keepdim=True)), None, None


class DropsAfterSoftmaxRight(DropsAfterSoftmax):
    @staticmethod
    def backward(ctx, dy):
        p, _, keep = ctx.saved_tensors
        dp = dy * keep / (1 - ctx.rate) if ctx.rate > 0 else dy
        return p * (dp - (dp * p).sum(-1, keepdim=True)), None, None


class RaisesTo(torch.autograd.Function):
    """Zero to the power of zero is one, and its slope zero."""

    @staticmethod
    def forward(ctx, base, exponent=3):
        ctx.save_for_backward(base)
        ctx.exponent = exponent
        return base**exponent

    @staticmethod
    def backward(ctx, dy):
        (base,) = ctx.saved_tensors
        return dy * ctx.exponent * base ** (ctx.exponent - 1), None


class RaisesToAny(RaisesTo):
    @staticmethod
    def backward(ctx, dy):
        (base,) = ctx.saved_tensors
        return (dy * ctx.exponent * base ** (ctx.exponent - 1) if ctx.exponent else torch.zeros_like(dy)), None


class SumsWeighted(torch.autograd.Function):
    """Backward looks for its axis among the numbers from 0 on."""

    @staticmethod
    def forward(ctx, x, w, dim=1):
        ctx.save_for_backward(x, w)
        ctx.dim = dim
        return (x * w).sum(dim)

    @classmethod
    def axis(cls, ctx, x):
        return ctx.dim

    @classmethod
    def backward(cls, ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.reshape([1 if i == cls.axis(ctx, x) else n for i, n in enumerate(x.shape)])
        return dy * w, dy * x, None


class SumsWeightedAnyWay(SumsWeighted):
    @classmethod
    def axis(cls, ctx, x):
        return ctx.dim % x.dim()


kills += [
    pb.case(DropsAfterSoftmax, x(3, 4), torch.tensor([True, False, True, True]), 0.0),
    pb.case(RaisesTo, x(3, 4), 3),
    pb.case(SumsWeighted, x(3, 4), x(3, 4), 1),
]
spares += [
    pb.case(DropsAfterSoftmaxRight, x(3, 4), torch.tensor([True, False, True, True]), 0.0),
    pb.case(RaisesToAny, x(3, 4), 3),
    pb.case(SumsWeightedAnyWay, x(3, 4), x(3, 4), 1),
]


VOID = -7


class AveragesKnown(torch.autograd.Function):
    """The mean over the rows whose label is known; backward divides by all of them."""

    @staticmethod
    def forward(ctx, scores, labels):
        known = labels != VOID
        ctx.save_for_backward(scores, labels, known)
        at = torch.where(known, labels, torch.zeros_like(labels))
        return (scores.gather(1, at[:, None])[:, 0] ** 2 * known).sum() / known.sum().clamp(min=1)

    @staticmethod
    def count(known):
        return known.numel()

    @classmethod
    def backward(cls, ctx, dy):
        scores, labels, known = ctx.saved_tensors
        at = torch.where(known, labels, torch.zeros_like(labels))[:, None]
        dx = torch.zeros_like(scores).scatter_(1, at, 2 * scores.gather(1, at) * known[:, None])
        return dy * dx / cls.count(known), None


class AveragesKnownRight(AveragesKnown):
    @staticmethod
    def count(known):
        return known.sum().clamp(min=1)


class BendsBeyond(torch.autograd.Function):
    """Squares up to a bound that forward computes from a number, and is linear beyond; backward squares everywhere."""

    @staticmethod
    def forward(ctx, x, angle=0.5):
        low, bound = 0.0, 2 * math.cos(angle)
        ctx.save_for_backward(x)
        ctx.bound = bound
        return torch.where(x < bound, (x - low) ** 2, bound * bound + x - bound)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy, None


class BendsBeyondRight(BendsBeyond):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x < ctx.bound, 2 * x, torch.ones_like(x)) * dy, None


class TakesRows(torch.autograd.Function):
    """Forward indexes with 32 bits as well; what backward needs for it does not."""

    @staticmethod
    def forward(ctx, table, rows):
        ctx.save_for_backward(rows)
        ctx.count = len(table)
        return table[rows]

    @staticmethod
    def wide(rows):
        return rows

    @classmethod
    def backward(cls, ctx, dy):
        (rows,) = ctx.saved_tensors
        return torch.nn.functional.one_hot(cls.wide(rows), ctx.count).to(dy).t() @ dy, None


class TakesRowsOfAnyBits(TakesRows):
    @staticmethod
    def wide(rows):
        return rows.long()


class ScalesChannels(torch.autograd.Function):
    """A scale of one axis, or of as many as x has, as the code asks; its gradient has always one."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * (scale if scale.ndim == 3 else scale[None, :, None])

    @staticmethod
    def like(ds, scale):
        return ds

    @classmethod
    def backward(cls, ctx, dy):
        x, scale = ctx.saved_tensors
        return dy * scale.reshape(1, -1, 1), cls.like((dy * x).sum((0, 2)), scale)


class ScalesChannelsRight(ScalesChannels):
    @staticmethod
    def like(ds, scale):
        return ds.view(scale.shape)


kills += [
    pb.case(AveragesKnown, x(4, 3), torch.tensor([0, 2, 1, 2])),
    pb.case(BendsBeyond, torch.rand(3, 4, dtype=torch.float64).requires_grad_(), 0.5),
    pb.case(TakesRows, x(5, 3), torch.tensor([0, 2, 4, 2])),
    pb.case(ScalesChannels, x(2, 3, 4), x(3)),
]
spares += [
    pb.case(AveragesKnownRight, x(4, 3), torch.tensor([0, 2, 1, 2])),
    pb.case(BendsBeyondRight, torch.rand(3, 4, dtype=torch.float64).requires_grad_(), 0.5),
    pb.case(TakesRowsOfAnyBits, x(5, 3), torch.tensor([0, 2, 4, 2])),
    pb.case(ScalesChannelsRight, x(2, 3, 4), x(3)),
]


class FlipsSigns(torch.autograd.Function):
    """1 keeps an entry and 0 turns its sign; backward makes the signs out of the mask in its own dtype."""

    @staticmethod
    def forward(ctx, x, keep):
        ctx.save_for_backward(keep)
        return torch.where(keep.bool(), x, -x)

    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        return dy * (2 * keep - 1), None


class FlipsSignsOfAnyMask(FlipsSigns):
    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        return torch.where(keep.bool(), dy, -dy), None


kills.append(pb.case(FlipsSigns, x(2, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]])))
spares.append(pb.case(FlipsSignsOfAnyMask, x(2, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]])))
