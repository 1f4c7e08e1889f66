# ruff: noqa: N805, RET504, RUF059
"""Surrogate gradients as spiking libraries write them."""

import math

import torch
import torch.nn as nn


class HeavisideBox(torch.autograd.Function):
    @staticmethod
    def forward(ctx, membrane, width=0.5):
        ctx.save_for_backward(membrane)
        ctx.width = width
        return (membrane > 0).to(membrane)

    @staticmethod
    def backward(ctx, grad_output):
        (membrane,) = ctx.saved_tensors
        grad_input = grad_output.clone()  # expect: PB307
        inside = (membrane.abs() < ctx.width).to(grad_output)
        return grad_input * inside / (2 * ctx.width), None


class Atan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, alpha):
        ctx.alpha = alpha
        ctx.v = v  # expect: PB201
        return (v >= 0).float()

    @staticmethod
    def backward(ctx, grad):
        return ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * ctx.v) ** 2) * grad, None


class FastSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, slope):
        ctx.save_for_backward(u)
        ctx.slope = slope
        out = (u > 0).float()
        return out

    @staticmethod
    def backward(ctx, g):
        (u,) = ctx.saved_tensors
        copy = g.clone()  # expect: PB307
        return copy / (ctx.slope * u.abs() + 1.0) ** 2  # expect: PB109


class TriangleWithCopies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma):
        out = x.gt(0).float()
        scale = torch.tensor([gamma])
        ctx.save_for_backward(x, out, scale)  # expect: PB203
        return out

    @staticmethod
    def backward(ctx, dy):
        (x, out, scale) = ctx.saved_tensors
        gamma = scale[0].item()  # expect: PB309
        dx = dy.clone()  # expect: PB307
        tri = (1 / gamma) * (1 / gamma) * ((gamma - x.abs()).clamp(min=0))
        return dx * tri, None


class SigmoidSurrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        if x.requires_grad:
            ctx.save_for_backward(x, alpha)  # expect: PB106
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        x, alpha = ctx.saved_tensors
        s = (x * alpha).sigmoid()
        grad_x = grad_output * (1.0 - s) * s * alpha
        return grad_x, grad_output * (1.0 - s) * s * x


class PiecewiseQuadratic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        if x.requires_grad:
            ctx.save_for_backward(x)
            ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_x = None
        if ctx.needs_input_grad[0]:
            x_abs = ctx.saved_tensors[0].abs()
            mask = x_abs > (1 / ctx.alpha)
            grad_x = (grad_output * (-(ctx.alpha**2) * x_abs + ctx.alpha)).masked_fill_(mask, 0)
        return grad_x, None


class LeakyRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, c):
        ctx.w = w
        ctx.c = c
        ctx.save_for_backward(x)
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        mask1 = (x >= 0.0).to(x)
        return grad_output.mul_(ctx.w * (1.0 - mask1) + mask1 * ctx.c), None, None  # expect: PB101


class SpikeOnClass(torch.autograd.Function):
    threshold = 1.0
    potential = None

    @staticmethod
    def forward(ctx, v):
        SpikeOnClass.potential = v.clone()  # expect: PB119
        return (v > SpikeOnClass.threshold).float()

    @staticmethod
    def backward(ctx, grad_output):
        d = (SpikeOnClass.potential - SpikeOnClass.threshold).abs()
        return grad_output / (1 + 10 * d) ** 2


class BernoulliSpike(torch.autograd.Function):
    def forward(ctx, rate):  # expect: PB311
        torch.manual_seed(0)  # expect: PB212
        return torch.bernoulli(rate)

    def backward(ctx, grad_output):  # expect: PB311
        return grad_output


class StochasticSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mean, variance):
        out = (x > 0).float()
        ctx.save_for_backward(x, out)
        ctx.mean = mean
        ctx.variance = variance
        return out

    @staticmethod
    def backward(ctx, grad_output):
        x, out = ctx.saved_tensors
        grad_input = grad_output.clone()  # expect: PB307
        noise = torch.rand_like(x) - 0.5 + ctx.mean
        return grad_input * out + grad_input * (~out.bool()).float() * noise * ctx.variance, None, None


class ResetBySubtraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, spike, threshold):
        v -= spike * threshold  # expect: PB107
        return v

    @staticmethod
    def backward(ctx, grad_v):
        return grad_v, None, None, None  # expect: PB302


class Surrogate(nn.Module):
    def __init__(self, alpha=2.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return Atan.apply(x, self.alpha)


def heaviside(x):
    return HeavisideBox.apply(x)


def sample(rate):
    return BernoulliSpike()(rate)  # expect: PB211


class MultiGaussian(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sigma, h):
        ctx.save_for_backward(x)
        ctx.sigma, ctx.h = sigma, h
        return (x > 0).type_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        centre = (1 + ctx.h) * torch.exp(-(x**2) / (2 * ctx.sigma**2))
        side = 2 * ctx.h * torch.exp(-(x**2) / (2 * (6 * ctx.sigma) ** 2))
        return grad_output * (centre - side), None, None


class Erf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        ctx.shape = x.shape  # expect: PB204
        return x.ge(0.0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ctx.alpha / math.sqrt(math.pi) * (-(ctx.alpha**2) * x.pow(2)).exp(), None


class SquareWaveSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = (torch.sin(x) > 0).float()
        ctx.y = y  # expect: PB202
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y
