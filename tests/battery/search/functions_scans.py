"""Recurrences over time, as layers of sequence models have them in plain torch."""

import torch
from torch.autograd import Function


class DecayingState(Function):
    """h_t = sigmoid(decay) h_{t-1} + k_t v_t"""

    expects = ("decay", "k", "v")

    @staticmethod
    def forward(ctx, decay, k, v):
        batch, steps, channels = k.shape
        h = k.new_zeros(batch, channels)
        before, out = [], []
        for t in range(steps):
            before.append(h)
            h = h * torch.sigmoid(decay) + k[:, t] * v[:, t]
            out.append(h)
        ctx.save_for_backward(decay, k, v, torch.stack(before, 1))
        return torch.stack(out, 1)

    @staticmethod
    def backward(ctx, dy):
        decay, k, v, before = ctx.saved_tensors
        s = torch.sigmoid(decay)
        dh, d_decay = torch.zeros_like(dy[:, 0]), torch.zeros_like(dy[:, 0])
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        for t in reversed(range(k.shape[1])):
            dh = dh * s + dy[:, t]
            dk[:, t], dv[:, t] = dh * v[:, t], dh * k[:, t]
            d_decay += dh * before[:, t]
        return (d_decay * s * (1 - s)).sum_to_size(decay.shape), dk, dv


class GatedScan(Function):
    """h_t = a_t h_{t-1} + b_t, the pieces named before they are used"""

    expects = ("a", "b")

    @staticmethod
    def forward(ctx, a, b):
        h = torch.zeros_like(b[:, 0])
        states = []
        for t in range(b.size(1)):
            at, bt = a[:, t], b[:, t]
            h = at * h + bt
            states.append(h)
        ctx.save_for_backward(a, torch.stack(states, 1))
        return torch.stack(states, 1)

    @staticmethod
    def backward(ctx, dy):
        a, states = ctx.saved_tensors
        da, db = torch.zeros_like(a), torch.zeros_like(dy)
        dh = torch.zeros_like(dy[:, 0])
        for t in reversed(range(dy.size(1))):
            dh = dh + dy[:, t]
            db[:, t] = dh
            if t > 0:
                da[:, t] = dh * states[:, t - 1]
            dh = dh * a[:, t]
        return da, db


class LinearAttention(Function):
    """A state of keys by values; queries read it"""

    expects = ("q", "k", "v")

    @staticmethod
    def forward(ctx, q, k, v, scale=None):
        B, H, T, D = q.shape
        scale = D**-0.5 if scale is None else scale
        S = q.new_zeros(B, H, D, v.shape[-1])
        out = []
        for i in range(T):
            S = S + k[:, :, i, :, None] * v[:, :, i, None, :]
            out.append((q[:, :, i, :, None] * S).sum(-2) * scale)
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return torch.stack(out, 2)

    @staticmethod
    def backward(ctx, do):
        q, k, v = ctx.saved_tensors
        scores = torch.einsum("bhid,bhjd->bhij", q, k).tril() * ctx.scale
        d_scores = torch.einsum("bhie,bhje->bhij", do, v).tril() * ctx.scale
        dq = torch.einsum("bhij,bhjd->bhid", d_scores, k)
        dk = torch.einsum("bhij,bhid->bhjd", d_scores, q)
        dv = torch.einsum("bhij,bhie->bhje", scores, do)
        return dq, dk, dv, None
