"""Spiking neurons with surrogate gradients in the styles found in public code."""

from __future__ import annotations

import math

import torch
from torch.autograd import Function


class ATanSurrogate(Function):
    expects = ("x",)
    exact = False

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
            grad_x = ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * ctx.saved_tensors[0]).pow_(2)) * grad_output
        return grad_x, None


def heaviside(x: torch.Tensor) -> torch.Tensor:
    return (x >= 0).to(x)


class SigmoidSurrogate(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x: torch.Tensor, alpha: float):
        if x.requires_grad:
            ctx.save_for_backward(x)
            ctx.alpha = alpha
        return heaviside(x)

    @staticmethod
    def backward(ctx, grad_output):
        s = (ctx.saved_tensors[0] * ctx.alpha).sigmoid_()
        return grad_output * (1.0 - s) * s * ctx.alpha, None


class TriangleSpike(Function):
    expects = ("input",)
    exact = False

    @staticmethod
    def forward(ctx, input, gama):
        out = (input > 0).to(input.dtype)
        ctx.save_for_backward(input, torch.tensor([gama]))
        return out

    @staticmethod
    def backward(ctx, grad_output):
        input, others = ctx.saved_tensors
        gama = others[0].item()
        tmp = (1 / gama) ** 2 * (gama - input.abs()).clamp(min=0)
        return grad_output * tmp, None


class SuperSpike(Function):
    expects = ("input",)
    exact = False
    scale = 10.0

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        out = torch.zeros_like(input)
        out[input > 0] = 1.0
        return out

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output.clone() / (SuperSpike.scale * torch.abs(input) + 1.0) ** 2


class RectangularWindow(Function):
    expects = ("mem",)
    exact = False

    @staticmethod
    def forward(ctx, mem, thresh, lens):
        ctx.save_for_backward(mem)
        ctx.thresh, ctx.lens = thresh, lens
        return mem.gt(thresh).to(mem.dtype)

    @staticmethod
    def backward(ctx, g):
        (mem,) = ctx.saved_tensors
        return g * (abs(mem - ctx.thresh) < ctx.lens).to(g.dtype), None, None


class MultiGaussian(Function):
    expects = ("u",)
    exact = False

    @staticmethod
    def forward(ctx, u, sigma=0.5, height=0.15):
        ctx.save_for_backward(u)
        ctx.sigma, ctx.height = sigma, height
        return u.gt(0).type_as(u)

    @staticmethod
    def backward(ctx, grad):
        (u,) = ctx.saved_tensors

        def gaussian(x, mu, s):
            return torch.exp(-((x - mu) ** 2) / (2 * s**2)) / (math.sqrt(2 * math.pi) * s)

        s, h = ctx.sigma, ctx.height
        return grad * (gaussian(u, 0.0, s) * (1 + h) - gaussian(u, s, 6 * s) * h), None, None


class LIFStep(Function):
    expects = ("input_current", "v_mem")
    exact = False

    @staticmethod
    def forward(ctx, input_current, v_mem, decay, v_threshold, v_reset=None):
        v = v_mem * decay + input_current
        spike = (v >= v_threshold).to(v.dtype)
        ctx.save_for_backward(v, spike)
        ctx.decay, ctx.v_threshold, ctx.soft = decay, v_threshold, v_reset is None
        v_next = v - spike * v_threshold if v_reset is None else v * (1 - spike) + v_reset * spike
        return spike, v_next

    @staticmethod
    def backward(ctx, grad_spike, grad_v):
        v, spike = ctx.saved_tensors
        surrogate = 1 / (1 + (math.pi * (v - ctx.v_threshold)) ** 2)
        keep = 1 if ctx.soft else 1 - spike
        grad = grad_spike * surrogate + grad_v * keep
        return grad, grad * ctx.decay, None, None, None


class MultiStepLIF(Function):
    expects = ("x_seq", "v_init")
    exact = False

    @staticmethod
    def forward(ctx, x_seq, v_init, tau, v_threshold):
        T = x_seq.shape[0]
        v, spikes, kept = v_init, [], []
        for t in range(T):
            v = v + (x_seq[t] - v) / tau
            kept.append(v)
            s = (v >= v_threshold).to(v.dtype)
            spikes.append(s)
            v = v * (1 - s)
        ctx.save_for_backward(torch.stack(kept), torch.stack(spikes))
        ctx.tau, ctx.v_threshold = tau, v_threshold
        return torch.stack(spikes), v

    @staticmethod
    def backward(ctx, grad_s, grad_v):
        h, s = ctx.saved_tensors
        grads = torch.empty_like(h)
        for t in reversed(range(h.shape[0])):
            surrogate = 1 / (1 + (h[t] - ctx.v_threshold).abs()) ** 2
            grad_h = grad_s[t] * surrogate + grad_v * (1 - s[t])
            grads[t] = grad_h / ctx.tau
            grad_v = grad_h * (1 - 1 / ctx.tau)
        return grads, grad_v, None, None


class PiecewiseQuadratic(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, alpha=1.0, spiking=True):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        if spiking:
            return heaviside(x)
        mask = (x.abs() > 1 / alpha).to(x)
        return mask * heaviside(x) + (1 - mask) * (-(alpha**2) / 2 * x.square() * x.sign() + alpha * x + 0.5)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (-(ctx.alpha**2) * x.abs() + ctx.alpha).clamp(min=0), None, None


class SpikeWithSurrogate(Function):
    expects = ("v",)
    exact = False

    @staticmethod
    def forward(ctx, v, surrogate_grad):
        ctx.save_for_backward(v)
        ctx.surrogate_grad = surrogate_grad
        return (v > 0).to(v)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * ctx.surrogate_grad(v), None
