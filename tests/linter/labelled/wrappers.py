"""Small wrappers around one operation: casts, masks, hooks, in the manner of utility modules."""

import torch
from torch.autograd import Function


class CastThenScale(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        y = x.clone()
        y.float().mul_(k)  # expect: PB103
        return y

    @staticmethod
    def backward(ctx, g):
        g.reshape(-1).mul_(ctx.k)  # expect: PB101 PB103
        return g, None


class MaskGradient(Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        torch.mul(g, mask, out=g)  # expect: PB101
        return g, None


class Observe(Function):
    @staticmethod
    def forward(ctx, x, callback):
        ctx.callback = callback
        callback("value", x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        ctx.callback("gradient", g)
        return g, None


class Accumulate(Function):
    total = 0.0

    @staticmethod
    def forward(ctx, x, flag):
        global last_input
        last_input = x  # expect: PB119
        ctx.flag = flag
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.flag:
            return g * 2  # expect: PB109
        return g * 2 * torch.ones_like(last_input), None


class Clone(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.clone()  # expect: PB307


class DetachedCopy(Function):
    @staticmethod
    def forward(ctx, x, w):
        x = x.contiguous()
        if x.requires_grad:  # expect: PB207
            ctx.save_for_backward(x, w)  # expect: PB106
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x


class GradScaleLater(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x

    @staticmethod
    def backward(ctx, g):
        (scale,) = ctx.saved_tensors
        g.div_(scale)  # expect: PB101
        return g, None, None  # expect: PB302
