"""Kills and spares of PB506."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class SavesIntermediate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = x.exp()
        ctx.save_for_backward(e)
        return e.sin()

    @staticmethod
    def backward(ctx, dy):
        (e,) = ctx.saved_tensors
        return dy * e * e.cos()


class SavesInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.exp() * w, x * x

    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        return dy * x.exp() * w + 2 * x * dz, dy * x.exp()


class DetachesWeight(SavesInput):
    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        return dy * x.exp() * w.detach() + 2 * x * dz, dy * x.exp()


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class UnderNoGrad(SavesOutput):
    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        with torch.no_grad():
            return dy * (1 - y * y)


class Once(SavesOutput):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gradient, dy, y):
        return gradient.clone()

    @staticmethod
    def backward(ctx, dy):
        raise RuntimeError("no second derivative")


class OnceAndSays(SavesOutput):
    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return Refuses.apply(dy.detach() * (1 - y.detach() ** 2), dy, y)


class ComplexProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.exp() * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * (x.exp() * w).conj(), dy * x.exp().conj()


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return dy * ctx.factor, None


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x > 0)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(SavesIntermediate, x(3)),
    pb.case(SavesIntermediate, x(3)).declare(orders=2),
    pb.case(DetachesWeight, x(3), x(3)).declare(orders=2),
    pb.case(UnderNoGrad, x(2, 2)).declare(orders=2),
    pb.case(Once, x(3)).declare(orders=2),
    pb.case(Once, x(3, dtype=torch.float32)).declare(orders=2),
]
spares = [
    pb.case(SavesIntermediate, x(3)),
    pb.case(SavesInput, x(3), x(3)).declare(orders=2),
    pb.case(SavesOutput, x(2, 2)).declare(orders=2),
    pb.case(SavesOutput, x()).declare(orders=2),
    pb.case(Once, x(3)),
    pb.case(OnceAndSays, x(3)).declare(orders=2),
    pb.case(Relu, x(6)).declare(orders=2),
    pb.case(Relu, x(0)).declare(orders=2),
    pb.case(ComplexProduct, x(3, dtype=torch.complex128), x(3, dtype=torch.complex128)).declare(orders=2),
    pb.case(Scale, x(3), 2.0),
]


class SumsInBfloat16(torch.autograd.Function):
    """Its output moves in steps, of which second differences know nothing."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.bfloat16().sum(-1).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy.unsqueeze(-1).expand(ctx.shape)


spares.append(pb.case(SumsInBfloat16, x(3, 4)))
