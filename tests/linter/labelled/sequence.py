# ruff: noqa: B905, F401, I001, RUF059
"""Recurrences, attention and state space scans, as sequence model libraries write them."""

import functools

import torch
import torch.nn.functional as F
import triton

from scan_helpers import gate_backward, in_place_rotate, keep, rotate


def contiguous(fn):
    @functools.wraps(fn)
    def wrapper(ctx, *args, **kwargs):
        return fn(ctx, *(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args), **kwargs)

    return wrapper


class LinearAttention(torch.autograd.Function):
    @staticmethod
    @contiguous
    def forward(ctx, q, k, v, scale=None, initial_state=None, output_final_state=False):
        s = torch.einsum("btd,bte->bde", k, v)
        o = torch.einsum("btd,bde->bte", q, s) * scale
        ctx.save_for_backward(q, k, v, initial_state)  # expect: PB203
        ctx.scale = scale
        ctx.dtype = q.dtype  # expect: PB204
        return o.to(q.dtype), s

    @staticmethod
    @contiguous
    def backward(ctx, do, ds):
        q, k, v, initial_state = ctx.saved_tensors
        do = do.view(-1, do.shape[-1]).view(do.shape) * ctx.scale
        s = torch.einsum("btd,bte->bde", k, v)
        dq = torch.einsum("bte,bde->btd", do, s)
        g = torch.einsum("btd,bte->bde", q, do) + ds
        return dq, torch.einsum("bte,bde->btd", v, g), torch.einsum("btd,bde->bte", k, g)  # expect: PB306


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    @staticmethod
    def backward(ctx, dq, dk):
        cos, sin = ctx.saved_tensors
        return in_place_rotate(dq, cos, -sin), rotate(dk, cos, -sin), None, None  # expect: PB101


class RotarySafe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate(q, cos, sin)

    @staticmethod
    def backward(ctx, dq):
        cos, sin = ctx.saved_tensors
        return in_place_rotate(dq.clone(), cos, -sin), None, None


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        keep(ctx, x, g)
        return x * torch.sigmoid(g)

    @staticmethod
    def backward(ctx, dy):
        return gate_backward(ctx, dy)


class GateTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        keep(ctx, x, g)
        return x * torch.sigmoid(g)

    @staticmethod
    def backward(ctx, dy):
        pair = gate_backward(ctx, dy)
        return pair, pair  # expect: PB123


class CumSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        ctx.x_dtype = x.dtype  # expect: PB204
        return x.cumsum(dim)

    @staticmethod
    def backward(ctx, g):
        g *= 1  # expect: PB101
        return g.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim)  # expect: PB109


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        h = torch.zeros_like(b)
        state = torch.zeros_like(b[0])
        for t in range(len(b)):
            state = a[t] * state + b[t]
            h[t] = state
        ctx.h = h  # expect: PB202
        ctx.save_for_backward(a)
        return h

    @staticmethod
    def backward(ctx, dh):
        (a,) = ctx.saved_tensors
        h = ctx.h
        db = torch.zeros_like(dh)
        carry = torch.zeros_like(dh[0])
        for t in range(len(dh) - 1, -1, -1):
            carry = dh[t] + carry
            db[t] = carry
            carry = carry * a[t]
        da = torch.cat([torch.zeros_like(h[:1]), h[:-1]]) * db
        return da, db


class ScanState(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decay, return_state):
        state = (x * decay).sum(0)
        out = x.cumsum(0) * decay
        ctx.save_for_backward(x, decay)
        return (out, state) if return_state else out

    @staticmethod
    def backward(ctx, do):  # expect: PB111
        x, decay = ctx.saved_tensors
        g = (do * decay).flip(0).cumsum(0).flip(0)
        return g, (do * x.cumsum(0)).sum(0), None


class TokenShift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cache):
        out = torch.cat([cache, x[:-1]]) - x
        ctx.n = len(x)  # expect: PB204
        return out, x

    @staticmethod
    def backward(ctx, dout, dx):  # expect: PB117
        g = -dout
        g[:-1] += dout[1:]
        return g, dout[:1]


class Softcap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        t = torch.tanh(x / cap)
        ctx.save_for_backward(t)
        ctx.cap = cap  # expect: PB204
        return cap * t

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        t.pow_(2).neg_().add_(1)  # expect: PB104
        return g * t, None


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        lse = x.logsumexp(-1)
        ctx.save_for_backward(x, lse.view(-1))  # expect: PB202
        return lse

    @staticmethod
    def backward(ctx, g):
        x, lse = ctx.saved_tensors
        return (x - lse.view(*x.shape[:-1], 1)).exp() * g[..., None]


class DecodeOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        return F.softmax(q @ k.t(), -1) @ v

    @staticmethod
    def backward(ctx, do):
        raise NotImplementedError("decoding has no backward")


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        s = q @ k.transpose(-1, -2) * scale
        lse = torch.logsumexp(s, -1, keepdim=True)
        p = torch.exp(s - lse)
        o = p @ v
        if torch.is_grad_enabled():  # expect: PB209
            ctx.save_for_backward(q, k, v, p, lse)  # expect: PB203
        ctx.causal, ctx.scale = causal, scale  # expect: PB204
        return o, lse

    @staticmethod
    def backward(ctx, do, *args):  # expect: PB116
        q, k, v, p, lse = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ do
        dp = do @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.transpose(-1, -2) @ q, dv, None, None  # expect: PB306


class Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lengths):
        ctx.lengths = lengths
        ctx.shape = x.shape
        return torch.cat([row[:n] for row, n in zip(x, lengths.tolist())])

    @staticmethod
    def backward(ctx, g):
        out = g.new_zeros(ctx.shape)
        for i, part in enumerate(g.split(ctx.lengths.tolist())):
            out[i, : len(part)] = part
        return out  # expect: PB109


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, training):
        if not training or p == 0:
            ctx.identity = True
            return x.view_as(x)
        mask = (torch.rand_like(x) > p).to(x.dtype) / (1 - p)
        ctx.identity = False
        ctx.save_for_backward(mask)
        ctx.p = p  # expect: PB204
        return x * mask

    @staticmethod
    def backward(ctx, g):
        if ctx.identity:
            return g.clone(), None, None  # expect: PB307
        (mask,) = ctx.saved_tensors
        return g * mask, None, None, None  # expect: PB302


class Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ids, weight):
        ctx.save_for_backward(ids, weight)
        return weight[ids]

    @staticmethod
    def backward(ctx, g):
        ids, weight = ctx.saved_tensors
        n, d = weight.shape
        dw = torch.zeros(n, d, dtype=g.dtype, device=g.device)
        dw.index_add_(0, ids.reshape(-1), g.reshape(-1, d))
        return None, dw


class BackwardFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            z = (y * y).sum()
        ctx.y, ctx.z = y, z  # expect: PB201
        return z.detach()

    @staticmethod
    def backward(ctx, g):
        ctx.z.backward(g)  # expect: PB213
        return ctx.y.grad


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.index = index
        return x[index]

    @staticmethod
    def backward(ctx, g):
        out = torch.empty_like(g)
        out[ctx.index] = g
        ctx.index = None  # expect: PB304
        return out, None


class HostSync(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.norm()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        n = x.norm().item()  # expect: PB309
        if n == 0.0:
            return torch.zeros_like(x)
        return x / n * g


class ScaleSeeded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            noise = torch.randn_like(x)
        ctx.seed = seed
        return x * noise

    @staticmethod
    def backward(ctx, g):
        torch.manual_seed(ctx.seed)  # expect: PB212
        return g * torch.randn_like(g), None
