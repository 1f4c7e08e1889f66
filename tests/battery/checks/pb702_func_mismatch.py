"""Kills and spares of PB702."""

import torch

import pullback as pb


class AsksRequiresGrad(torch.autograd.Function):
    """Keeps the slope only where the input says that it requires grad, which it never does inside a transform."""

    @staticmethod
    def forward(x, w):
        return x * w, torch.tensor(x.requires_grad)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.needed = bool(output[1])
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, _):
        x, w = ctx.saved_tensors
        return dy * w if ctx.needed or not ctx.needs_input_grad[1] else torch.zeros_like(dy), dy * x


class Cubes(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, x.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, dy, ds):
        (x,) = ctx.saved_tensors
        return 3 * dy * x**2 + ds

    @staticmethod
    def jvp(ctx, dx):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * dx, dx.sum()


class Once(torch.autograd.Function):
    @staticmethod
    def forward(x, w, n):
        return (x @ w) * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.n = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return ctx.n * dy @ w.t(), ctx.n * x.t() @ dy, None


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


def straight_through(x):
    return StraightThrough.apply(x)


in_graph = torch.compiler.allow_in_graph(straight_through)


def kept(x):
    return in_graph(x)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(AsksRequiresGrad, x(3), x(3))]
spares = [
    pb.case(Cubes, x(3)),
    pb.case(Once, x(2, 3), x(3, 2), 2.0),
    pb.case(kept, x(4)).declare(exact=False, reason="straight-through estimator"),
    pb.case(lambda t: Cubes.apply(2 * t)[0].sum(), x(3)),
]
