"""Kills and spares of PB608."""

import ctypes

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return dy.clone().mul_(2)


class DoublesInPlace(Double):
    @staticmethod
    def backward(ctx, dy):
        return dy.mul_(2)


class WritesOut(Double):
    @staticmethod
    def backward(ctx, dy):
        return torch.mul(dy, 2, out=dy)


class WritesThroughNumpy(Double):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        memory = dy.numpy()
        memory *= 2
        return dy.clone()


class WritesThroughPointer(Double):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        dy = dy.contiguous()
        memory = (ctypes.c_double * dy.numel()).from_address(dy.data_ptr())
        for i in range(dy.numel()):
            memory[i] *= 2
        return dy.clone()


class WritesOneElement(Double):
    @staticmethod
    def backward(ctx, dy):
        dy.view(-1)[-1] = 0
        return dy * 2


class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_sin * x.cos() - d_cos * x.sin()


class SinCosReusesSecond(SinCos):
    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_cos.mul_(-x.sin()).add_(d_sin * x.cos())


class ReturnsItself(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class ClonesNumpy(Double):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        memory = dy.numpy().copy()
        memory *= 2
        return torch.from_numpy(memory)


class WritesCast(Double):
    @staticmethod
    def backward(ctx, dy):
        return dy.to(torch.float64, copy=True).mul_(2).to(dy.dtype)


class InPlaceOnOwnZeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        order = x.argsort()
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return x[order], order

    @staticmethod
    def backward(ctx, dy, _):
        (order,) = ctx.saved_tensors
        grad = torch.zeros_like(dy)
        grad[order] = dy
        return grad


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def scaled_after(a):
    return DoublesInPlace.apply(a) * 3


def scaled_after_right(a):
    return Double.apply(a) * 3 + Double.apply(a).exp()


kills = [
    pb.case(DoublesInPlace, x(3)),
    pb.case(DoublesInPlace, x()),
    pb.case(DoublesInPlace, x(2, 3, dtype=torch.float32)),
    pb.case(WritesOut, x(3)),
    pb.case(WritesThroughNumpy, x(3, 2)),
    pb.case(WritesThroughPointer, x(3, 2)),
    pb.case(WritesOneElement, x(3, 2)),
    pb.case(SinCosReusesSecond, x(3)),
    pb.case(scaled_after, x(3)),
]
spares = [
    pb.case(Double, x(3)),
    pb.case(SinCos, x(3)),
    pb.case(ReturnsItself, x(3), x(3)),
    pb.case(ClonesNumpy, x(3)),
    pb.case(WritesCast, x(3, dtype=torch.float32)),
    pb.case(InPlaceOnOwnZeros, x(4)),
    pb.case(scaled_after_right, x(3)),
]


class Turns(torch.autograd.Function):
    """Works in place where it is asked to, but for grad_output."""

    @staticmethod
    def forward(ctx, x, angle, inplace=False):
        ctx.angle = angle
        if inplace:
            ctx.mark_dirty(x)
            return x.mul_(angle)
        return x * angle

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.angle, None, None


class TurnsGradient(Turns):
    @staticmethod
    def forward(ctx, x, angle, inplace=False):
        ctx.inplace = inplace
        return Turns.forward(ctx, x, angle, inplace)

    @staticmethod
    def backward(ctx, dy):
        return dy.mul_(ctx.angle) if ctx.inplace else dy * ctx.angle, None, None


kills.append(pb.case(TurnsGradient, x(3, 2), 0.7))
spares.append(pb.case(Turns, x(3, 2), 0.7))


class ScalesGradient(torch.autograd.Function):
    """A factor for the gradient alone, which the sample leaves out."""

    @staticmethod
    def forward(ctx, x, axis, factor=None):
        ctx.axis, ctx.factor = axis, factor
        return x.movedim(axis, 0).contiguous()

    @staticmethod
    def backward(ctx, dy):
        if ctx.factor is not None:
            dy = dy * ctx.factor
        return dy.movedim(0, ctx.axis), None, None


class ScalesGradientInPlace(ScalesGradient):
    @staticmethod
    def backward(ctx, dy):
        if ctx.factor is not None:
            dy.mul_(ctx.factor)
        return dy.movedim(0, ctx.axis).clone(), None, None


kills.append(pb.case(ScalesGradientInPlace, x(2, 3), 1, None).declare(exact=False, reason="scaled on purpose"))
spares.append(pb.case(ScalesGradient, x(2, 3), 1, None).declare(exact=False, reason="scaled on purpose"))
