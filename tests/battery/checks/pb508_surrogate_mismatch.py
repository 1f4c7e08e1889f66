"""Kills and spares of PB508."""

import torch

import pullback as pb


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * ctx.slope / (1 + (ctx.slope * x).square()), None


class StepWithoutSlope(Step):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy / (1 + (ctx.slope * x).square()), None


def arctan(x, slope):
    return torch.atan(slope * x)


class RoundClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo, ctx.hi = lo, hi
        return x.round().clamp(lo, hi)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x >= ctx.lo) * (x <= ctx.hi), None, None


class OpenBounds(RoundClamp):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x > ctx.lo) * (x < ctx.hi), None, None


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.clone(), 2 * y

    @staticmethod
    def backward(ctx, dx, dy):
        return -dx, 2 * dy


class ReverseBoth(Reverse):
    @staticmethod
    def backward(ctx, dx, dy):
        return -dx, -2 * dy


class Blocked(Reverse):
    @staticmethod
    def backward(ctx, dx, dy):
        return None, 2 * dy


def reversed_gradient(x, y):
    return -x, 2 * y


def x(*shape):
    return (3 * torch.randn(shape, dtype=torch.float64)).requires_grad_()


def clamp(x, lo, hi):
    return x.clamp(lo, hi)


kills = [
    pb.case(StepWithoutSlope, x(4), 3.0).declare(surrogate=arctan),
    pb.case(StepWithoutSlope, x(4).float().detach().requires_grad_(), 3.0).declare(surrogate=arctan),
    pb.case(OpenBounds, x(3, 2), -2, 1.5).declare(surrogate=clamp),
    pb.case(ReverseBoth, x(3), x(2)).declare(surrogate=reversed_gradient),
    pb.case(Blocked, x(3), x(2)).declare(surrogate=reversed_gradient),
    pb.case(Step, x(4), 3.0).declare(surrogate=lambda x, slope: (slope * x).sum()),
    pb.case(Step, x(4), 3.0).declare(surrogate=lambda x: x),
]
spares = [
    pb.case(Step, x(4), 3.0).declare(surrogate=arctan),
    pb.case(Step, x(4).float().detach().requires_grad_(), 3.0).declare(surrogate=arctan),
    pb.case(Step, x(), 3.0).declare(surrogate=arctan),
    pb.case(RoundClamp, x(3, 2), -2, 1.5).declare(surrogate=clamp),
    pb.case(Reverse, x(3), x(2)).declare(surrogate=reversed_gradient),
]
