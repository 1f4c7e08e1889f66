"""Normalisations in the styles found in public code."""

from __future__ import annotations

import torch
from torch.autograd import Function


class LayerNormFunction(Function):
    expects = ("x", "weight", "bias")

    @staticmethod
    def forward(ctx, x, normalized_shape, weight, bias, eps=1e-5):
        dims = tuple(range(-len(normalized_shape), 0))
        mu = x.mean(dims, keepdim=True)
        rstd = torch.rsqrt(x.var(dims, unbiased=False, keepdim=True) + eps)
        xhat = (x - mu) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.dims = dims
        if tuple(x.shape[-len(normalized_shape) :]) != tuple(normalized_shape):
            raise RuntimeError(f"expected trailing shape {tuple(normalized_shape)}, got {tuple(x.shape)}")
        return xhat * weight + bias

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd, weight = ctx.saved_tensors
        batch = tuple(range(dy.dim() - len(ctx.dims)))
        dw, db = ((dy * xhat).sum(batch), dy.sum(batch)) if batch else (dy * xhat, dy)
        g = dy * weight
        dx = rstd * (g - g.mean(ctx.dims, keepdim=True) - xhat * (g * xhat).mean(ctx.dims, keepdim=True))
        return dx, None, dw, db, None


class RMSNormFn(Function):
    expects = ("x", "weight")

    @staticmethod
    def forward(ctx, x, weight, eps):
        rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rms)
        return x * rms * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, rms = ctx.saved_tensors
        g = dy * weight
        dx = rms * g - x * rms**3 * (g * x).mean(-1, keepdim=True)
        dw = (dy * x * rms).reshape(-1, x.shape[-1]).sum(0)
        return dx, dw, None


class BatchNorm2dTrain(Function):
    expects = ("input", "gamma", "beta")

    @staticmethod
    def forward(ctx, input, gamma, beta, running_mean, running_var, momentum=0.1, eps=1e-5, training=True):
        _N, C, _H, _W = input.shape
        if training:
            mean, var = input.mean((0, 2, 3)), input.var((0, 2, 3), unbiased=False)
            with torch.no_grad():
                running_mean.mul_(1 - momentum).add_(momentum * mean)
                running_var.mul_(1 - momentum).add_(momentum * var)
        else:
            mean, var = running_mean, running_var
        invstd = torch.rsqrt(var + eps).view(1, C, 1, 1)
        xhat = (input - mean.view(1, C, 1, 1)) * invstd
        ctx.save_for_backward(xhat, invstd, gamma)
        ctx.training = training
        return xhat * gamma.view(1, C, 1, 1) + beta.view(1, C, 1, 1)

    @staticmethod
    def backward(ctx, dy):
        xhat, invstd, gamma = ctx.saved_tensors
        dims = (0, 2, 3)
        dgamma, dbeta = (dy * xhat).sum(dims), dy.sum(dims)
        g = dy * gamma.view(1, -1, 1, 1)
        if not ctx.training:
            return g * invstd, dgamma, dbeta, None, None, None, None, None
        dx = invstd * (g - g.mean(dims, keepdim=True) - xhat * (g * xhat).mean(dims, keepdim=True))
        return dx, dgamma, dbeta, None, None, None, None, None


class GroupNormNoAffine(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, num_groups, eps):
        shape = x.shape
        g = x.reshape(shape[0], num_groups, -1)
        mu, var = g.mean(-1, keepdim=True), g.var(-1, unbiased=False, keepdim=True)
        rstd = (var + eps).rsqrt()
        xhat = (g - mu) * rstd
        ctx.save_for_backward(xhat, rstd)
        return xhat.reshape(shape)

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd = ctx.saved_tensors
        g = dy.reshape(xhat.shape)
        dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
        return dx.reshape(dy.shape), None, None


class L2Normalize(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, dim: int = 1, eps: float = 1e-12):
        norm = x.norm(2, dim, keepdim=True).clamp(min=eps)
        y = x / norm
        ctx.save_for_backward(y, norm)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx, g):
        y, norm = ctx.saved_tensors
        return (g - y * (g * y).sum(ctx.dim, keepdim=True)) / norm, None, None


class WeightNormFn(Function):
    expects = ("v", "g")

    @staticmethod
    def forward(ctx, v, g):
        norms = v.pow(2).sum(1, keepdim=True).sqrt()
        ctx.save_for_backward(v, g, norms)
        return v * (g.view(-1, 1) / norms)

    @staticmethod
    def backward(ctx, dw):
        v, g, norms = ctx.saved_tensors
        unit = v / norms
        dg = (dw * unit).sum(1)
        dv = g.view(-1, 1) / norms * (dw - unit * dg.view(-1, 1))
        return dv, dg.view_as(g)


class WeightStandardization(Function):
    expects = ("weight",)

    @staticmethod
    def forward(ctx, weight, eps=1e-5):
        flat = weight.flatten(1)
        mean = flat.mean(1, keepdim=True)
        std = ((flat - mean).pow(2).mean(1, keepdim=True) + eps).sqrt()
        hat = (flat - mean) / std
        ctx.save_for_backward(hat, std)
        ctx.shape = weight.shape
        return hat.view(ctx.shape)

    @staticmethod
    def backward(ctx, grad):
        hat, std = ctx.saved_tensors
        g = grad.flatten(1)
        return ((g - g.mean(1, keepdim=True) - hat * (g * hat).mean(1, keepdim=True)) / std).view(ctx.shape), None


class ResidualRMSNorm(Function):
    expects = ("hidden_states", "residual", "weight")

    @staticmethod
    def forward(ctx, hidden_states, residual, weight, variance_epsilon):
        s = hidden_states + residual
        rstd = torch.rsqrt(s.square().mean(dim=-1, keepdim=True) + variance_epsilon)
        ctx.save_for_backward(s, rstd, weight)
        return s * rstd * weight, s

    @staticmethod
    def backward(ctx, dy, ds):
        s, rstd, weight = ctx.saved_tensors
        g = dy * weight
        grad = rstd * g - s * rstd.pow(3) * (g * s).mean(-1, keepdim=True) + ds
        dw = (dy * s * rstd).flatten(0, -2).sum(0) if s.dim() > 1 else dy * s * rstd
        return grad, grad, dw, None


class ChannelNormInference(Function):
    """Vectors laid along the second axis."""

    expects = ("x", "weight", "bias")

    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, eps=1e-5):
        _, channels, _, _ = x.shape

        def spread(t):
            return t.view(1, channels, 1, 1)

        hat = (x - running_mean.view(1, -1, 1, 1)) * torch.rsqrt(running_var.view(1, -1, 1, 1) + eps)
        ctx.save_for_backward(hat, weight, running_var)
        ctx.eps = eps
        return hat * weight.view(1, -1, 1, 1) + spread(bias)

    @staticmethod
    def backward(ctx, dy):
        hat, weight, var = ctx.saved_tensors
        dx = dy * weight[None, :, None, None] * torch.rsqrt(var[None, :, None, None] + ctx.eps)
        return dx, (dy * hat).sum((0, 2, 3)), dy.sum((0, 2, 3)), None, None, None
