"""Kills and spares of PB624."""

import torch

import pullback as pb


class WantsContiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        assert w.is_contiguous(), "w must be contiguous"
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class SinglePrecisionOnly(WantsContiguous):
    @staticmethod
    def forward(ctx, x, w):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        ctx.save_for_backward(x, w)
        return x * w


class TakesAll(WantsContiguous):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(WantsContiguous, x(3, 4), x(3, 4)),
    pb.case(SinglePrecisionOnly, x(3, dtype=torch.float32), x(3, dtype=torch.float32)),
]
spares = [
    pb.case(WantsContiguous, x(3, 4), x(3, 4)),
    pb.case(SinglePrecisionOnly, x(3, dtype=torch.float32), x(3, dtype=torch.float32)),
    pb.case(TakesAll, x(3, 4), x(3, 4)),
]
