"""Kills and spares of PB709."""

import functools

import torch

import pullback as pb


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.tanh(slope * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * ctx.slope * (1 - torch.tanh(ctx.slope * x) ** 2), None


def factory(slope):
    def spike(x):
        return Spike.apply(x, slope)

    return spike


class Holds(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Callable:
    def __init__(self, slope):
        self.slope = slope

    def __call__(self, x):
        return Spike.apply(x, self.slope)


def top(x, slope=2.0):
    return Spike.apply(x, slope)


def pullback_cases():
    def wrapper(x):
        return Spike.apply(x, 2.0)

    yield pb.case(wrapper, x())


def x():
    return torch.randn(4, dtype=torch.float64, requires_grad=True)


kills = [pb.case(factory(2.0), x()), pb.case(Holds(factory(2.0)), x()), pb.case(Holds(lambda v: Spike.apply(v, 2.0)), x())]
spares = [
    pb.case(Callable(2.0), x()),
    pb.case(Holds(Callable(2.0)), x()),
    pb.case(functools.partial(top, slope=3.0), x()),
    pb.case(top, x()),
    pb.case(lambda v: Spike.apply(v, 2.0), x()),
    pb.case(Spike, x(), 2.0),
    *pullback_cases(),
]
