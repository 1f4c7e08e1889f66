"""Attention over one head: softmax(q kᵀ / sqrt(d)) v."""

import math

import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        ctx.save_for_backward(q, k, v)
        return p @ v

    @staticmethod
    def backward(ctx, dy):
        q, k, v = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.mT * scale, -1)
        dp = dy @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k * scale, ds.mT @ q * scale, p.mT @ dy


def inputs():
    return tuple(torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in "qkv")


FAULTS = [
    ("dropped factor", "constant-factor", "ds @ k * scale", "ds @ k"),
    ("factor twice", "constant-factor", "ds.mT @ q * scale", "ds.mT @ q * scale * scale"),
    ("missing term", None, "dp - (dp * p).sum(-1, keepdim=True)", "dp"),
    ("wrong reduction", None, "(dp * p).sum(-1, keepdim=True)", "(dp * p).mean(-1, keepdim=True)"),
    ("missing transpose", None, "ds.mT @ q * scale", "ds @ q * scale"),
    ("wrong operand", None, "ds @ k * scale", "ds @ q * scale"),
    ("missing transpose", None, "p.mT @ dy", "p @ dy"),
]
WRAPPED = ["swapped gradients", "wrong when frozen", "strides ignored", "inputs' strides ignored", "low precision inside", "stale gradient"]
