"""Checkpointing, layers and modules in the styles found in public code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Checkpoint(Function):
    expects = ("args",)

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        ctx.run_function = run_function
        ctx.preserve_rng_state = preserve_rng_state
        if preserve_rng_state:
            ctx.rng = torch.get_rng_state()
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.enable_grad():
            outputs = ctx.run_function(*inputs)
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        torch.autograd.backward(outputs, grads)
        return (None, None, *(t.grad for t in inputs))


class CheckpointWithLength(Function):
    expects = ("args",)

    @staticmethod
    def forward(ctx, run_function, length, *args):
        ctx.run_function = run_function
        ctx.input_tensors = list(args[:length])
        ctx.input_params = list(args[length:])
        with torch.no_grad():
            return ctx.run_function(*ctx.input_tensors)

    @staticmethod
    def backward(ctx, *output_grads):
        ctx.input_tensors = [x.detach().requires_grad_(True) for x in ctx.input_tensors]
        with torch.enable_grad():
            shallow = [x.view_as(x) for x in ctx.input_tensors]
            output = ctx.run_function(*shallow)
        grads = torch.autograd.grad(output, ctx.input_tensors + ctx.input_params, output_grads, allow_unused=True)
        return (None, None, *grads)


class ThroughModule(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (dx,) = torch.autograd.grad(ctx.module(x), x, g)
        return dx, None


class ElementwiseWith(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, fn):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            out = fn(inner)
        ctx.inner, ctx.out = inner, out
        return out.detach()

    @staticmethod
    def backward(ctx, g):
        return torch.autograd.grad(ctx.out, ctx.inner, g)[0], None


class LinearFunction(Function):
    expects = ("input", "weight", "bias")

    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class FusedLinearReLU(Function):
    expects = ("x", "w", "b")

    @staticmethod
    def forward(ctx, x, w, b):
        y = F.linear(x, w, b).relu()
        ctx.save_for_backward(x, w, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w, y = ctx.saved_tensors
        dz = dy * (y > 0)
        flat = dz.reshape(-1, dz.shape[-1])
        return dz @ w, flat.t() @ x.reshape(-1, x.shape[-1]), flat.sum(0)


class Conv2dFunction(Function):
    expects = ("input", "weight", "bias")

    @staticmethod
    def forward(ctx, input, weight, bias, stride=1, padding=0):
        ctx.save_for_backward(input, weight)
        ctx.stride, ctx.padding, ctx.has_bias = stride, padding, bias is not None
        return F.conv2d(input, weight, bias, stride, padding)

    @staticmethod
    def backward(ctx, g):
        input, weight = ctx.saved_tensors
        gi = torch.nn.grad.conv2d_input(input.shape, weight, g, ctx.stride, ctx.padding)
        gw = torch.nn.grad.conv2d_weight(input, weight.shape, g, ctx.stride, ctx.padding)
        return gi, gw, g.sum((0, 2, 3)) if ctx.has_bias else None, None, None


class AttentionFn(Function):
    expects = ("q", "k", "v")

    @staticmethod
    def forward(ctx, q, k, v, softmax_scale=None, causal=False):
        scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
        s = torch.matmul(q, k.transpose(-2, -1)) * scale
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        p = s.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        dv = p.transpose(-2, -1) @ do
        dp = do @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-2, -1) @ q, dv, None, None


class ApplyRotary(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved=False):
        _batch, _seqlen, _nheads, headdim = x.shape
        half = cos.shape[-1]
        assert half * 2 == headdim, "rotary dimension must be half of the head dimension"
        c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)
        ctx.save_for_backward(c, s)
        ctx.interleaved = interleaved
        return ApplyRotary.rotate(x, c, s, interleaved)

    @staticmethod
    def rotate(x, c, s, interleaved):
        if interleaved:
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * s, a * s + b * c], -1)

    @staticmethod
    def backward(ctx, dy):
        c, s = ctx.saved_tensors
        return ApplyRotary.rotate(dy, c, -s, ctx.interleaved), None, None, None


class SeededDropout(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, p, seed, training=True):
        if p == 0.0 or not training:
            ctx.mask = None
            return x.clone()
        generator = torch.Generator().manual_seed(seed)
        ctx.mask = (torch.rand(x.shape, generator=generator) >= p).to(x.dtype) / (1 - p)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, g):
        return g if ctx.mask is None else g * ctx.mask, None, None, None


class ConfiguredScale(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, cfg):
        ctx.factor = cfg.gain / (cfg.width + 1)
        return x * ctx.factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None


class MomentumResidual(Function):
    expects = ("x", "velocity")

    @staticmethod
    def forward(ctx, x, velocity, gamma: float):
        ctx.gamma = gamma
        v = gamma * velocity + (1 - gamma) * torch.tanh(x)
        ctx.save_for_backward(x)
        return x + v, v

    @staticmethod
    def backward(ctx, gx, gv):
        (x,) = ctx.saved_tensors
        total = gx + gv
        return gx + total * (1 - ctx.gamma) * (1 - torch.tanh(x) ** 2), total * ctx.gamma, None
