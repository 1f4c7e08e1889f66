"""Kills and spares of PB621."""

import torch

import pullback as pb


class Mixes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class DeclaresAndMixes(torch.autograd.Function):
    """Says that it knows autocast, but casts nothing and leaves it on."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        y = x @ w
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return torch.mm(dy, w.t()), torch.mm(x.t(), dy)


class WrongUnderAutocast(torch.autograd.Function):
    """Takes bfloat16 to mean that what it saved is a reciprocal."""

    @staticmethod
    def forward(ctx, x, w):
        y = x @ w
        ctx.low = y.dtype == torch.bfloat16
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.to(x.dtype)
        return (dy @ w.t()) * (0.5 if ctx.low else 1.0), x.t() @ dy


class WrongInHalf(WrongUnderAutocast):
    """Knows bfloat16; takes the other low precision for something else."""

    @staticmethod
    def forward(ctx, x, w):
        y = WrongUnderAutocast.forward(ctx, x, w)
        ctx.low = y.dtype == torch.float16
        return y


class Casts(Mixes):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return (dy @ w.t().to(dy.dtype)).to(x.dtype), (x.t().to(dy.dtype) @ dy).to(w.dtype)


class Declares(Mixes):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Elementwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp() * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp() * (1 + x)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(Mixes, x(3, 4), x(4, 2)),
    pb.case(DeclaresAndMixes, x(3, 4), x(4, 2)),
    pb.case(WrongUnderAutocast, x(3, 4), x(4, 2)),
    pb.case(WrongInHalf, x(3, 4), x(4, 2)),
]
spares = [
    pb.case(Mixes, x(3, 4), x(4, 2)),
    pb.case(Casts, x(3, 4), x(4, 2)),
    pb.case(Declares, x(3, 4), x(4, 2)),
    pb.case(Elementwise, x(3, 4)),
]


class InTheDtypeOfActivations(torch.autograd.Function):
    """The weight is cast to the dtype of x in forward; backward multiplies it as it came."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class CastsInBackwardToo(InTheDtypeOfActivations):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.to(dy.dtype).t(), (x.t().to(dy.dtype) @ dy).to(w.dtype)


kills.append(pb.case(InTheDtypeOfActivations, x(3, 4), x(4, 2)))
spares.append(pb.case(CastsInBackwardToo, x(3, 4), x(4, 2)))
