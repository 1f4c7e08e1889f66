"""Kills and spares of PB623."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class BackwardInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x.sin().backward(dy)
        return x.grad


class AssignsGrad(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        w.grad = (dy * x).detach()
        return dy * w, None


class DetachesFirst(BackwardInside):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        inner = x.detach().requires_grad_()
        with torch.enable_grad():
            inner.sin().backward(dy)
        return inner.grad


class UsesGrad(BackwardInside):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            return torch.autograd.grad(inner.sin(), inner, dy)[0]


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(BackwardInside, x(3)),
    pb.case(AssignsGrad, x(3), x(3)),
    pb.case(AssignsGrad, x(3), torch.randn(3, dtype=torch.float64)),
]
spares = [
    pb.case(DetachesFirst, x(3)),
    pb.case(UsesGrad, x(3)),
]


class RecomputesLayer(torch.autograd.Function):
    """The parameters' gradients go past the engine: autograd.grad and hooks never see them."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        with torch.no_grad():
            return layer(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            ctx.layer(inner).backward(dy)
        return inner.grad, None


class RecomputesFrozenLayer(RecomputesLayer):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            return torch.autograd.grad(ctx.layer(inner), inner, dy)[0], None


def layer(grad):
    return torch.nn.Linear(4, 3, dtype=torch.float64).requires_grad_(grad)


kills.append(pb.case(lambda t, m: RecomputesLayer.apply(t, m), x(2, 4), layer(True)))
spares += [pb.case(lambda t, m: RecomputesFrozenLayer.apply(t, m), x(2, 4), layer(False))]
