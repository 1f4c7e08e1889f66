"""Kills and spares of PB610."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y.clone())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class ExpScalesSaved(Exp):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return ctx.saved_tensors[0].mul_(dy).clone()


class ExpThroughNumpy(Exp):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        memory = ctx.saved_tensors[0].numpy()
        memory *= dy.numpy()
        return torch.from_numpy(memory.copy())


class CountsCalls(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.calls = 0

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        ctx.calls += 1
        return dy * w / ctx.calls, dy * x


class InnerGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.inner = x.detach().requires_grad_()
            ctx.result = ctx.inner.sin() * ctx.inner
        return ctx.result.detach()

    @staticmethod
    def backward(ctx, dy):
        return torch.autograd.grad(ctx.result, ctx.inner, dy)[0]


class Frees(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = torch.full_like(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        factor, ctx.factor = ctx.factor, None
        return dy * factor.abs(), None


class RefusesTwice(Exp):
    @staticmethod
    def forward(ctx, x):
        ctx.done = False
        return Exp.forward(ctx, x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        if ctx.done:
            raise RuntimeError("backward can run only once: buffers are reused")
        ctx.done = True
        return dy * ctx.saved_tensors[0]


class NormalizesOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mean):
        ctx.save_for_backward(x)
        ctx.mean = mean
        mean.lerp_(x.mean(0), 0.1)
        return (x - x.mean(0)).square()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        inner = 2 * dy * (x - x.mean(0))
        return inner - inner.mean(0), None


class InnerGraphInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * x

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            result = inner.sin() * inner
        return torch.autograd.grad(result, inner, dy)[0]


class Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.3
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(ExpScalesSaved, x(3)),
    pb.case(ExpThroughNumpy, x(3)),
    pb.case(CountsCalls, x(3), x(3)),
    pb.case(InnerGraph, x(3)),
    pb.case(Frees, x(3), 2.0),
]
spares = [
    pb.case(Exp, x(3)),
    pb.case(RefusesTwice, x(3)),
    pb.case(NormalizesOnce, x(4, 3), torch.zeros(3, dtype=torch.float64)),
    pb.case(InnerGraphInBackward, x(3)),
    pb.case(Noise, x(30)),
]


class FlipsCache(torch.autograd.Function):
    """Changes the sign of a cached factor in place and relies on it."""

    @staticmethod
    def forward(ctx, x, cache):
        ctx.cache = cache
        return cache["factor"] * x

    @staticmethod
    def backward(ctx, dy):
        return -ctx.cache["factor"].neg_() * dy, None


class CountsInCache(FlipsCache):
    """Accumulates into a cache that gradients do not depend on."""

    @staticmethod
    def backward(ctx, dy):
        ctx.cache["seen"] += dy.detach().sum()
        return ctx.cache["factor"] * dy, None


def cached():
    factor = torch.randn(4, dtype=torch.float64)
    return {"factor": factor, "seen": torch.zeros((), dtype=torch.float64)}


kills += [pb.case(FlipsCache, torch.randn(4, dtype=torch.float64, requires_grad=True), cached())]
spares += [pb.case(CountsInCache, torch.randn(4, dtype=torch.float64, requires_grad=True), cached())]
