# ruff: noqa: RUF059
"""Fused norms and activations as kernel libraries write them: a launch helper, a Function around it."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from torch.cuda.amp import custom_bwd, custom_fwd


@triton.jit
def _rms_forward_kernel(x, y, w, r, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + cols, mask=cols < n)
    rstd = 1 / tl.sqrt(tl.sum(v * v) / n + eps)
    tl.store(r + row, rstd)
    tl.store(y + row * n + cols, v * rstd * tl.load(w + cols), mask=cols < n)


@triton.jit
def _rms_backward_kernel(dy, x, w, r, dx, dw, n, BLOCK: tl.constexpr):
    pass


def rms_forward(x, w, eps):
    shape = x.shape
    x = x.view(-1, shape[-1])
    y = torch.empty_like(x)
    r = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    _rms_forward_kernel[(x.shape[0],)](x, y, w, r, x.shape[1], eps, BLOCK=1024)
    return y.view(shape), r


def rms_backward(dy, x, w, r, in_place):
    shape = dy.shape
    dy = dy.view(-1, shape[-1])
    dx = dy if in_place else torch.empty_like(dy)
    dw = torch.zeros_like(w)
    _rms_backward_kernel[(dy.shape[0],)](dy, x, w, r, dx, dw, dy.shape[1], BLOCK=1024)
    return dx.view(shape), dw


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps, in_place=True):
        y, r = rms_forward(x, w, eps)
        ctx.eps = eps  # expect: PB204
        ctx.in_place = in_place
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    def backward(ctx, dy):  # expect: PB305
        x, w, r = ctx.saved_tensors
        dx, dw = rms_backward(dy, x, w, r, ctx.in_place)
        return dx, dw, None, None


class LayerNormReference(torch.autograd.Function):
    @staticmethod
    @custom_fwd  # expect: PB310
    def forward(ctx, x, weight, bias, eps=1e-5):
        mean = x.mean(-1, keepdim=True)
        rstd = (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, bias, mean, rstd)  # expect: PB203
        ctx.eps = eps  # expect: PB204
        return (x - mean) * rstd * weight + bias

    @staticmethod
    @custom_bwd  # expect: PB310
    def backward(ctx, dy):
        x, weight, bias, mean, rstd = ctx.saved_tensors
        xhat = (x - mean) * rstd
        wdy = weight * dy
        c1 = (xhat * wdy).mean(-1, keepdim=True)
        c2 = wdy.mean(-1, keepdim=True)
        dx = (wdy - (xhat * c1 + c2)) * rstd
        return dx, (dy * xhat).sum(0), dy.sum(0)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        s = torch.sigmoid(gate)
        ctx.save_for_backward(gate, up, s)  # expect: PB203
        return gate * s * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up, s = ctx.saved_tensors
        s = torch.sigmoid(gate)
        up.mul_(dy)  # expect: PB104
        d_gate = up * s * (1 + gate * (1 - s))
        return d_gate, dy * gate * s


class GeGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ab):
        a, b = ab.chunk(2, dim=-1)
        out = torch.nn.functional.gelu(a) * b
        ctx.save_for_backward(a, b)
        return out

    @staticmethod
    def backward(ctx, dout):
        a, b = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(a * 0.7071067811865476))
        pdf = torch.exp(-0.5 * a * a) * 0.3989422804014327
        return torch.cat([dout * b * (cdf + a * pdf), dout * a * cdf], -1)


class RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x.float(), -1).to(x.dtype)
        ctx.y = y  # expect: PB202
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.y
        dx = dy.view(-1, dy.shape[-1])  # expect: PB214
        flat = y.reshape(-1, y.shape[-1])
        return ((dx - (dx * flat).sum(-1, keepdim=True)) * flat).view(y.shape)


class DyT(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha, gamma, beta):
        t = torch.tanh(alpha * x)
        ctx.tanh = t  # expect: PB201
        ctx.save_for_backward(x, alpha, gamma, beta)  # expect: PB203
        return gamma * t + beta

    @staticmethod
    def backward(ctx, dy):
        x, alpha, gamma, beta = ctx.saved_tensors
        t = ctx.tanh
        inner = (1 - t * t) * gamma * dy
        return inner * alpha, (inner * x).sum(), (dy * t).sum(0), dy.sum(0)


class GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups, w, b, eps):
        n, c = x.shape[:2]
        x = x.contiguous().view(n, groups, -1)
        mean = x.mean(-1)
        rstd = torch.rsqrt(x.var(-1, unbiased=False) + eps)
        ctx.save_for_backward(x, mean, rstd, w)  # expect: PB203
        ctx.shape = (n, c)  # expect: PB204
        ctx.groups = groups  # expect: PB204
        return (x - mean[..., None]) * rstd[..., None]

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, mean, rstd, w = ctx.saved_tensors
        dy = dy.contiguous().view(x.shape)
        xhat = (x - mean[..., None]) * rstd[..., None]
        dx = rstd[..., None] * (dy - dy.mean(-1, keepdim=True) - xhat * (dy * xhat).mean(-1, keepdim=True))
        return dx, None, (dy * xhat).sum((0, 2)), dy.sum((0, 2)), None


class FusedAddRMS(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, w):
        s = x + residual
        r = torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(s, w, r)
        return s * r * w, s

    @staticmethod
    def backward(ctx, dy, ds):
        s, w, r = ctx.saved_tensors
        h = dy * w
        dx = r * h - r**3 * s * (h * s).mean(-1, keepdim=True)
        if ds is not None:  # expect: PB303
            dx = dx + ds
        return dx, dx, (dy * s * r).sum(0)


class SaveTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, affine):
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, r)
        if affine:
            ctx.save_for_backward(x, r, w)  # expect: PB206
        return x * r * w

    @staticmethod
    def backward(ctx, dy):
        x, r, w = ctx.saved_tensors
        return dy * r * w, (dy * x * r).sum(0), None


class InPlaceRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.clamp_(min=0)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dy[y <= 0] = 0  # expect: PB101
        return dy


class InPlaceLeaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        x[x < 0] *= slope  # expect: PB107
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = dy.clone()
        dx[y < 0] *= ctx.slope
        return dx, None


class DirtyScratch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scratch):
        scratch.copy_(x)
        ctx.mark_dirty(scratch)  # expect: PB108
        return scratch.exp() - 1

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, return_stats):
        mean = x.mean(-1, keepdim=True)
        rstd = (x - mean).pow(2).mean(-1, keepdim=True).add(1e-5).rsqrt()
        ctx.save_for_backward(x, mean, rstd)
        y = (x - mean) * rstd
        if return_stats:
            return y, mean, rstd
        return y

    @staticmethod
    def backward(ctx, dy, dmean=None):  # expect: PB111
        x, mean, rstd = ctx.saved_tensors
        xhat = (x - mean) * rstd
        return rstd * (dy - dy.mean(-1, keepdim=True) - xhat * (dy * xhat).mean(-1, keepdim=True)), None


class StatsIgnored(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        var = centred.square().mean(-1, keepdim=True)
        y = centred / torch.sqrt(var + 1e-5)
        ctx.save_for_backward(y, var)
        return y, mean, var

    @staticmethod
    def backward(ctx, dy, dmean, dvar):  # expect: PB116
        y, var = ctx.saved_tensors
        return (dy - dy.mean(-1, keepdim=True) - y * (dy * y).mean(-1, keepdim=True)) / torch.sqrt(var + 1e-5)
