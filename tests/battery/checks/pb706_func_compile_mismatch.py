"""Kills and spares of PB706."""

import torch

import pullback as pb


class StraightThrough(torch.autograd.Function):
    __pullback__ = {"exact": False, "reason": "straight-through estimator"}

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy


class Scaled(torch.autograd.Function):
    __pullback__ = {"exact": False, "reason": "scaled gradient"}

    @staticmethod
    def forward(x, w):
        return x * w, x.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, ds):
        x, w = ctx.saved_tensors
        return 0.5 * dy * w + ds, dy * x


class Cubes(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * dy * x**2


def behind(x):
    return StraightThrough.apply(x)


in_graph = torch.compiler.allow_in_graph(behind)


def kept(x):
    return in_graph(x)


def x(*shape):
    return torch.linspace(-1.3, 1.4, 3, dtype=torch.float64).requires_grad_()


kills = [pb.case(StraightThrough, x()), pb.case(Scaled, x(), x())]
spares = [pb.case(Cubes, x()), pb.case(kept, x()).declare(exact=False, reason="straight-through estimator")]
