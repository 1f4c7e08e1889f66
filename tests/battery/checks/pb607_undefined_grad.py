"""Kills and spares of PB607."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        if d_sin is not None:
            grad = grad + d_sin * x.cos()
        if d_cos is not None:
            grad = grad - d_cos * x.sin()
        return grad


class SinCosUsesNone(SinCos):
    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_sin * x.cos() - d_cos * x.sin()


class SinCosForgetsSecond(SinCos):
    @staticmethod
    @once_differentiable
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_sin.mul(x.cos()) if d_cos is None else d_sin.mul(x.cos()) - d_cos * x.sin()


class SinCosDropsAll(SinCos):
    @staticmethod
    def backward(ctx, d_sin, d_cos):
        if d_sin is None or d_cos is None:
            return None
        (x,) = ctx.saved_tensors
        return d_sin * x.cos() - d_cos * x.sin()


class SetUp(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


class SetUpRight(SetUp):
    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None
        return SetUp.backward(ctx, dy)


class Materialized(SetUp):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


class NormAndCount(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        count = (x > 0).sum()
        ctx.mark_non_differentiable(count)
        return x.square().sum(), count, x * 3

    @staticmethod
    def backward(ctx, d_norm, _, d_three):
        (x,) = ctx.saved_tensors
        terms = [t for t in (None if d_norm is None else 2 * d_norm * x, None if d_three is None else 3 * d_three) if t is not None]
        return sum(terms) if terms else None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(SinCosUsesNone, x(3)),
    pb.case(SinCosForgetsSecond, x(3)),
    pb.case(SinCosDropsAll, x(3, 2)),
    pb.case(SetUp, x(2, 3), x(3)),
]
spares = [
    pb.case(SinCos, x(3)),
    pb.case(SetUpRight, x(2, 3), x(3)),
    pb.case(Materialized, x(2, 3), x(3)),
    pb.case(NormAndCount, x(4)),
    pb.case(NormAndCount, x()),
]


class RunningTotal(torch.autograd.Function):
    """Returns its last state as well where it is asked for; the loss may leave it out."""

    @staticmethod
    def forward(ctx, x, last=False):
        ctx.set_materialize_grads(False)
        ctx.last, ctx.shape = last, x.shape
        y = x.cumsum(0)
        return (y, y[-1].clone()) if last else y

    @staticmethod
    def backward(ctx, dy, dlast=None):
        total = None if dy is None else dy.flip(0).cumsum(0).flip(0)
        if dlast is None:
            return total, None
        return (torch.zeros(ctx.shape, dtype=dlast.dtype) if total is None else total) + dlast, None


class TakesTheLastForGiven(RunningTotal):
    @staticmethod
    def backward(ctx, dy, dlast=None):
        if ctx.last:
            return RunningTotal.backward(ctx, dy, dlast * 1)
        return RunningTotal.backward(ctx, dy)


kills += [pb.case(TakesTheLastForGiven, x(4, 3), False), pb.case(TakesTheLastForGiven, x(4, 3))]
spares += [pb.case(RunningTotal, x(4, 3), False), pb.case(RunningTotal, x(4, 3))]
