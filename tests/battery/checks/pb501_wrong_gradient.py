"""Kills and spares of PB501."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class DropsFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class SwapsOperands(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b.exp()

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return dy * a * b.exp(), dy * b.exp()


class WrongSecondOutput(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x.sin(), x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.n = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, dy, dz):
        (x,) = ctx.saved_tensors
        return dy * x.cos() + dz * x ** (ctx.n - 1), None


class NumpyTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.from_numpy(np.tanh(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y)


class RightNumpyTanh(NumpyTanh):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class MeanAsSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias=None):
        ctx.shape = x.shape
        ctx.biased = bias is not None
        return x.mean(0) + (0 if bias is None else bias)

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.shape), dy if ctx.biased else None


class Kinks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs(), x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy, dz):
        (x,) = ctx.saved_tensors
        return dy * x.sign() + dz * (x > 0)


class SinglePrecisionInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float().sin().to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.float().cos().to(x.dtype)


class SinglePrecisionFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.where(x > 0, 1.0, ctx.slope), None


class Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return dy * mask / (1 - ctx.p), None


class ForgetsToScale(Noise):
    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return dy * mask, None


class AddsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y, alpha=3)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy * 3


class ForgetsAlpha(AddsInPlace):
    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *parts):
        return sum(part * (i + 1) for i, part in enumerate(parts))

    @staticmethod
    def backward(ctx, dy):
        return dy, 2 * dy, 3 * dy


class SameWeights(Total):
    @staticmethod
    def backward(ctx, dy):
        return dy, dy, dy


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = x * w
        return y, y * 1, torch.arange(3)

    @staticmethod
    def backward(ctx, dy, dz, _):
        x, w = ctx.saved_tensors
        return (dy + dz) * w, (dy + dz) * x


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate, mean=False, bias=None):
        ctx.save_for_backward(x, gate)
        ctx.mean = mean
        ctx.biased = bias is not None
        y = x if gate is None else x * gate
        y = y.mean(0) if mean else y.sum(0)
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        bias = dy.clone() if ctx.biased else None
        dy = (dy / len(x) if ctx.mean else dy).expand(x.shape)
        return dy * gate if gate is not None else dy.clone(), dy * x if gate is not None else None, None, bias


class ForgetsMean(Gated):
    @staticmethod
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        bias = dy.clone() if ctx.biased else None
        dy = dy.expand(x.shape)
        return dy * gate if gate is not None else dy.clone(), dy * x if gate is not None else None, None, bias


class ForgetsUngated(Gated):
    @staticmethod
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        bias = dy.clone() if ctx.biased else None
        dy = (dy / len(x) if ctx.mean else dy).expand(x.shape)
        return dy * gate if gate is not None else torch.zeros_like(x), dy * x if gate is not None else None, None, bias


class NeedsBias(Gated):
    @staticmethod
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        if ctx.biased:
            bias = dy.clone()
        dy = (dy / len(x) if ctx.mean else dy).expand(x.shape)
        return dy * gate if gate is not None else dy.clone(), dy * x if gate is not None else None, None, bias


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(DropsFactor, x(3, 4)),
    pb.case(DropsFactor, x()),
    pb.case(DropsFactor, x(5, dtype=torch.float32)),
    pb.case(SwapsOperands, x(4), x(4)),
    pb.case(WrongSecondOutput, x(4), 3),
    pb.case(NumpyTanh, x(4)),
    pb.case(MeanAsSum, x(5, 3), x(3)),
    pb.case(MeanAsSum, x(5, 3)),
    pb.case(ForgetsToScale, x(20), 0.25),
    pb.case(ForgetsAlpha, x(3), x(3)),
    pb.case(SameWeights, x(3), x(3), x(3)),
    pb.case(ForgetsMean, x(3, 4), x(3, 4), True),
    pb.case(ForgetsMean, x(3, 4), x(3, 4), False),
    pb.case(ForgetsUngated, x(3, 4), x(3, 4), False, x(4)),
    pb.case(NeedsBias, x(3, 4), x(3, 4), True, x(4)),
]
spares = [
    pb.case(RightNumpyTanh, x(4)),
    pb.case(Kinks, x(3, 4)),
    pb.case(Kinks, torch.zeros(3, dtype=torch.float64, requires_grad=True)),
    pb.case(Kinks, x(0)),
    pb.case(SinglePrecisionInside, x(8)),
    pb.case(SinglePrecisionFactor, x(4, 5), 0.1),
    pb.case(Noise, x(20), 0.25),
    pb.case(AddsInPlace, x(3), x(3)),
    pb.case(Total, x(3), x(3), x(3)),
    pb.case(Twice, x(3), x(3)),
    pb.case(Gated, x(3, 4), x(3, 4), False, x(4)),
    pb.case(Gated, x(3, 4), x(3, 4), True, x(4)),
    pb.case(Gated, x(3, 4), None, True, None),
]


class SortsSingle(torch.autograd.Function):
    """Takes nothing but the dtype it was written for; its entries are as dense as the step of a difference quotient is wide."""

    dtype = torch.float32

    @classmethod
    def accept(cls, x):
        if x.dtype != cls.dtype:
            raise TypeError(f"expected {cls.dtype}, got {x.dtype}")

    @staticmethod
    def forward(ctx, x):
        SortsSingle.accept(x)
        values, order = x.sort()
        ctx.save_for_backward(order)
        return values

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return torch.empty_like(dy).scatter(0, order, dy)


spares += [pb.case(SortsSingle, x(200, dtype=torch.float32)), pb.case(SortsSingle, x(6, dtype=torch.float32))]


class LogDeterminant(torch.autograd.Function):
    """Only symmetric matrices are meant: forward reads the lower triangle, and the gradient is shared between both."""

    @staticmethod
    def forward(ctx, a):
        low = torch.linalg.cholesky(a)
        ctx.save_for_backward(low)
        return 2 * low.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    def backward(ctx, dy):
        return dy[..., None, None] * torch.cholesky_inverse(ctx.saved_tensors[0])


class Eigenvalues(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        ctx.save_for_backward(vectors)
        return values

    @staticmethod
    def backward(ctx, dy):
        (vectors,) = ctx.saved_tensors
        return vectors @ torch.diag_embed(dy) @ vectors.mT


class HalfALogDeterminant(LogDeterminant):
    @staticmethod
    def backward(ctx, dy):
        return LogDeterminant.backward(ctx, dy) / 2


def positive(n):
    a = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return (a @ a.T + n * torch.eye(n, dtype=torch.float64)).requires_grad_()


spares += [pb.case(LogDeterminant, positive(4)), pb.case(Eigenvalues, positive(3))]
kills.append(pb.case(HalfALogDeterminant, positive(4)))


class MedianByNumpy(torch.autograd.Function):
    """Where entries are tied the median is no entry's alone; any of them may get the gradient."""

    @staticmethod
    def forward(ctx, x):
        rows = x.detach().cpu().numpy()
        at = torch.from_numpy(rows.argsort(-1, kind="stable")[..., rows.shape[-1] // 2])
        ctx.save_for_backward(at)
        ctx.shape = x.shape
        return torch.from_numpy(np.sort(rows, -1)[..., rows.shape[-1] // 2].copy())

    @staticmethod
    def backward(ctx, dy):
        (at,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, dtype=dy.dtype).scatter(-1, at[..., None], dy[..., None])


spares.append(pb.case(MedianByNumpy, torch.tensor([[1.0, 1, 0, 0, 1], [2, 2, 2, 2, 2]], dtype=torch.float64, requires_grad=True)))
