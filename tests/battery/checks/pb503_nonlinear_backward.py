"""Kills and spares of PB503."""

import torch

import pullback as pb


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class Magnitude(Double):
    @staticmethod
    def backward(ctx, dy):
        return 2 * dy.abs()


class Clipped(Double):
    @staticmethod
    def backward(ctx, dy):
        return (2 * dy).clamp(-5, 5)


class Signs(Double):
    @staticmethod
    def backward(ctx, dy):
        return 2 * dy.sign()


class Normalised(Double):
    @staticmethod
    def backward(ctx, dy):
        return 2 * dy / dy.norm().clamp(min=1e-12)


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w, x + w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        return dy * w + dz, torch.where(dz > 0, dy * x + dz, 0)


class RightPair(Masked):
    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        return dy * w + dz, dy * x + dz


class AddsOne(Double):
    @staticmethod
    def backward(ctx, dy):
        return 2 * dy + 1


class FastPathForZeros(Double):
    @staticmethod
    def backward(ctx, dy):
        if not dy.any():
            return torch.zeros_like(dy)
        return dy + dy


class ClippedIdentity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x).clone()

    @staticmethod
    def backward(ctx, dy):
        return dy.clamp(-1, 1)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(Magnitude, x(3, 4)),
    pb.case(Clipped, x(4)),
    pb.case(Signs, x(4)),
    pb.case(Normalised, x(4)),
    pb.case(Masked, x(4), x(4)),
    pb.case(AddsOne, x(4, dtype=torch.float32)),
    pb.case(ClippedIdentity, x(4)),
]
spares = [
    pb.case(RightPair, x(4), x(4)),
    pb.case(FastPathForZeros, x(4)),
    pb.case(Double, x(4, dtype=torch.bfloat16)),
    pb.case(Double, x(4, dtype=torch.complex128)),
    pb.case(ClippedIdentity, x(4)).declare(exact=False, linear=False, reason="gradient clipping"),
]


class FloatSpike(torch.autograd.Function):
    """Its output, and so grad_output, is float32 whatever the input is."""

    @staticmethod
    def forward(ctx, v, beta):
        ctx.save_for_backward(v)
        ctx.beta = beta
        return (v > 0).float()

    @staticmethod
    def backward(ctx, dy):
        (v,) = ctx.saved_tensors
        return dy * ctx.beta / (1 + ctx.beta * v.abs()).square(), None


spares.append(pb.case(FloatSpike, x(3, 4), 0.7))


class ScalesInSingle(torch.autograd.Function):
    """Computes in float32; what is broadcast is left for the engine to sum, in float64."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x.float().sin() * w.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return (dy.float() * w.float() * x.float().cos()).to(x.dtype), (dy.float() * x.float().sin()).to(w.dtype)


spares.append(
    pb.case(ScalesInSingle, torch.randn(5, 4, 6, dtype=torch.float64).requires_grad_(), torch.randn(6, dtype=torch.float64).requires_grad_())
)


class NormalisesPairs(torch.autograd.Function):
    """Of two entries that are nearly equal the terms of the gradient cancel: few digits are left, whatever grad_output is."""

    @staticmethod
    def forward(ctx, x):
        pairs = x.reshape(x.shape[0], -1, 2)
        mean = pairs.mean(-1, keepdim=True)
        rstd = (pairs.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(x, mean, rstd)
        return ((pairs - mean) * rstd).reshape(x.shape)

    @staticmethod
    def backward(ctx, dy):
        x, mean, rstd = ctx.saved_tensors
        y = (x.reshape(x.shape[0], -1, 2) - mean) * rstd
        g = dy.reshape(y.shape)
        return ((g - g.mean(-1, keepdim=True) - y * (g * y).mean(-1, keepdim=True)) * rstd).reshape(x.shape)


apart = torch.tensor([[0.3, 1.9], [-0.7, 2.2], [1.1, 4.0]], dtype=torch.float64)
spares.append(pb.case(NormalisesPairs, apart.requires_grad_()))
