"""Gradient surgery and changes of shape in the styles found in public code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.autograd import Function


class GradReverse(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, lambda_):
        ctx.lambda_ = lambda_
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grads):
        return -ctx.lambda_ * grads, None


class GradientReversalTensor(Function):
    expects = ("input_",)
    exact = False

    @staticmethod
    def forward(ctx, input_, alpha_):
        ctx.save_for_backward(input_, alpha_)
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = None
        _, alpha_ = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            grad_input = -grad_output * alpha_
        return grad_input, None


class ScaleGradient(Function):
    expects = ("tensor",)
    exact = False

    @staticmethod
    def forward(ctx, tensor, scale):
        ctx.scale = scale
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.scale, None


class ClipGradient(Function):
    expects = ("x",)
    exact = False

    @staticmethod
    def forward(ctx, x, clip_value):
        ctx.clip_value = clip_value
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return torch.clamp(g, -ctx.clip_value, ctx.clip_value), None


class ReshapeFn(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, shape):
        ctx.shape = x.shape
        return x.reshape(shape).clone()

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape), None


class ExpandAs(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, sizes: tuple[int, ...]):
        ctx.sizes = x.shape
        return x.expand(sizes).clone()

    @staticmethod
    def backward(ctx, g):
        return g.sum_to_size(ctx.sizes), None


class PermuteDims(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, *dims):
        ctx.inverse = sorted(range(len(dims)), key=lambda i: dims[i] % len(dims))
        return x.permute(dims).contiguous()

    @staticmethod
    def backward(ctx, g):
        return (g.permute(ctx.inverse), *([None] * len(ctx.inverse)))


class PadLast(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, pad, mode="constant", value=0.0):
        left, right = pad
        ctx.left, ctx.size = left, x.size(-1)
        return F.pad(x, (left, right), mode, value)

    @staticmethod
    def backward(ctx, g):
        return g.narrow(-1, ctx.left, ctx.size), None, None, None


class SplitHeads(Function):
    expects = ("qkv",)

    @staticmethod
    def forward(ctx, qkv, num_heads):
        b, t, d = qkv.shape
        ctx.dims = b, t, d
        assert d % (3 * num_heads) == 0, "hidden size must be divisible by three times the heads"
        q, k, v = qkv.view(b, t, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
        return q.contiguous(), k.contiguous(), v.contiguous()

    @staticmethod
    def backward(ctx, dq, dk, dv):
        return torch.stack([dq, dk, dv], 0).permute(1, 3, 0, 2, 4).reshape(ctx.dims), None


class ConcatFn(Function):
    expects = ("tensors",)

    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim = dim
        ctx.sizes = [t.size(dim) for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return (None, *torch.split(g, ctx.sizes, ctx.dim))
