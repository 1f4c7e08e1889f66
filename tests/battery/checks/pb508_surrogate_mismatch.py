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


def within(x, step, zero_point=0, low=-4, high=3):
    return x.clamp((low - zero_point) * step, (high - zero_point) * step)


class Quantises(torch.autograd.Function):
    """Levels low to high around a zero point, which backward leaves out."""

    @staticmethod
    def forward(ctx, x, step, zero_point=0, low=-4, high=3):
        ctx.save_for_backward(x)
        ctx.levels = step, zero_point, low, high
        return ((x / step).round().add(zero_point).clamp(low, high) - zero_point) * step

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        step, _, low, high = ctx.levels
        return dy * ((x >= low * step) & (x <= high * step)), None, None, None, None


class QuantisesShifted(Quantises):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        step, zero_point, low, high = ctx.levels
        return dy * ((x >= (low - zero_point) * step) & (x <= (high - zero_point) * step)), None, None, None, None


kills.append(pb.case(Quantises, torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_(), 0.125).declare(surrogate=within))
kills.append(pb.case(Quantises, torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_(), 0.125, 0).declare(surrogate=within))
spares.append(pb.case(QuantisesShifted, torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_(), 0.125).declare(surrogate=within))
spares.append(pb.case(QuantisesShifted, torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_(), 0.125, 0).declare(surrogate=within))
