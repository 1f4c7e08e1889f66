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


class Loss(torch.autograd.Function):
    """What is summed is said by a word that the sample leaves at its default."""

    @staticmethod
    def forward(ctx, x, target, reduction="mean", delta=1.0):
        gap = x - target
        ctx.save_for_backward(gap)
        ctx.reduction, ctx.delta = reduction, delta
        loss = gap.square() * delta
        if reduction == "mean":
            return loss.mean()
        return loss.sum() if reduction == "sum" else loss

    @staticmethod
    def backward(ctx, dy):
        (gap,) = ctx.saved_tensors
        grad = dy * 2 * gap * ctx.delta
        if ctx.reduction == "mean":
            grad = grad / gap.numel()
        return grad, -grad, None, None


class AlwaysMean(Loss):
    @staticmethod
    def backward(ctx, dy):
        (gap,) = ctx.saved_tensors
        grad = dy * 2 * gap * ctx.delta / gap.numel()
        return grad, -grad, None, None


class Norm(torch.autograd.Function):
    """A flag and an order that are left at their defaults."""

    @staticmethod
    def forward(x, squared=False, order=2):
        if order == 1:
            return x.abs().sum(-1)
        total = x.square().sum(-1)
        return total if squared else total.sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.squared, ctx.order = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        if ctx.order == 1:
            return dy[..., None] * x.sign(), None, None
        return dy[..., None] * (2 * x if ctx.squared else x / y[..., None]), None, None


class NormForgetsFlag(Norm):
    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        if ctx.order == 1:
            return dy[..., None] * x.sign(), None, None
        return dy[..., None] * x / y[..., None], None, None


class NormForgetsOrder(Norm):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * (2 * x if ctx.squared else x / y[..., None]), None, None


class Relaxed(torch.autograd.Function):
    """With the flag it is a straight-through estimator, on purpose."""

    @staticmethod
    def forward(ctx, x, hard=False, dim=-1):
        y = x.softmax(dim)
        ctx.save_for_backward(y)
        ctx.dim = dim
        if hard:
            return torch.zeros_like(y).scatter_(dim, y.argmax(dim, keepdim=True), 1.0)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return y * (dy - (dy * y).sum(ctx.dim, keepdim=True)), None, None


class OnlyMean(Loss):
    """Other words are refused, in backward."""

    @staticmethod
    def backward(ctx, dy):
        if ctx.reduction != "mean":
            raise NotImplementedError("only the mean has a gradient")
        return Loss.backward(ctx, dy)


class Freezes(torch.autograd.Function):
    """Nothing is saved for inference."""

    @staticmethod
    def forward(ctx, x, training=True):
        if training:
            ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy, None


def fixed(*shape):
    return torch.linspace(-1.3, 1.7, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


kills += [
    pb.case(AlwaysMean, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(AlwaysMean, fixed(3, 4), fixed(4, 3).mT.detach(), "mean", 0.5),
    pb.case(NormForgetsFlag, fixed(3, 4)),
    pb.case(NormForgetsOrder, fixed(3, 4)),
]
spares += [
    pb.case(Loss, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(Loss, fixed(3, 4), fixed(4, 3).mT.detach(), "sum"),
    pb.case(Norm, fixed(3, 4)),
    pb.case(Relaxed, fixed(3, 4)),
    pb.case(OnlyMean, fixed(3, 4), fixed(4, 3).mT.detach()),
    pb.case(Freezes, fixed(3, 4)),
]


class Tempered(torch.autograd.Function):
    """Scores that a cap bends, where one is given; a scale has its usual value unless one is given."""

    @staticmethod
    def forward(ctx, x, cap=None, scale=None, smoothing=0.0):
        scale = scale or x.shape[-1] ** -0.5
        bent = x * scale if cap is None else cap * torch.tanh(x * scale / cap)
        ctx.save_for_backward(bent)
        ctx.cap, ctx.scale, ctx.smoothing = cap, scale, smoothing
        return (1 - smoothing) * bent + smoothing * bent.mean(-1, keepdim=True)

    @staticmethod
    def gradient(ctx, dy, cap, scale, smoothing):
        (bent,) = ctx.saved_tensors
        dy = (1 - smoothing) * dy + smoothing * dy.mean(-1, keepdim=True)
        bend = 1 if cap is None else 1 - (bent / cap) ** 2
        return dy * bend * scale, None, None, None

    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, ctx.scale, ctx.smoothing)


class ForgetsCap(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, None, ctx.scale, ctx.smoothing)


class GuessesScale(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, dy.shape[-1] ** -0.5, ctx.smoothing)


class ForgetsSmoothing(Tempered):
    @staticmethod
    def backward(ctx, dy):
        return Tempered.gradient(ctx, dy, ctx.cap, ctx.scale, 0.0)


class Reduced(torch.autograd.Function):
    """The word that nobody compares with is the rest: no reduction."""

    @staticmethod
    def forward(ctx, x, reduction="sum"):
        ctx.save_for_backward(x)
        ctx.reduction = reduction
        y = x.exp()
        return y.sum() if reduction == "sum" else y.mean() if reduction == "mean" else y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = dy * x.exp()
        return dx / x.numel() if ctx.reduction == "mean" else dx, None


class ReducedByFirst(Reduced):
    @staticmethod
    def backward(ctx, dy):
        return Reduced.backward(ctx, dy.reshape(-1)[0])


class ScaledRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, extra, row_weight=None):
        ctx.save_for_backward(row_weight)
        y = x + extra
        return y if row_weight is None else y * row_weight.unsqueeze(-1)

    @staticmethod
    def backward(ctx, dy):
        (row_weight,) = ctx.saved_tensors
        dx = dy if row_weight is None else dy * row_weight.unsqueeze(-1)
        return dx, dx, None


class ScalesOnlyFirst(ScaledRows):
    @staticmethod
    def backward(ctx, dy):
        return ScaledRows.backward(ctx, dy)[0], dy, None


class TakesNumberOnly(torch.autograd.Function):
    """What is None in the sample is meant to be a tensor: a number in its place is another matter."""

    @staticmethod
    def forward(ctx, x, shift=None):
        ctx.shifted = shift is not None
        return x.clone() if shift is None else x + shift

    @staticmethod
    def backward(ctx, dy):
        return dy, dy.sum(0) if ctx.shifted else None


kills += [
    pb.case(ForgetsCap, fixed(3, 4)),
    pb.case(ForgetsCap, fixed(3, 4), None, 0.3),
    pb.case(GuessesScale, fixed(3, 4), None, None),
    pb.case(ForgetsSmoothing, fixed(3, 4)),
    pb.case(ReducedByFirst, fixed(3, 4)),
    pb.case(ScalesOnlyFirst, fixed(3, 4), fixed(3, 4)),
]
spares += [
    pb.case(Tempered, fixed(3, 4)),
    pb.case(Tempered, fixed(3, 4), None, None, 0.0),
    pb.case(Reduced, fixed(3, 4)),
    pb.case(ScaledRows, fixed(3, 4), fixed(3, 4)),
    pb.case(TakesNumberOnly, fixed(3, 4), None),
]


class Permutes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, axes):
        ctx.axes = axes
        return x.permute(axes).contiguous()

    @staticmethod
    def backward(ctx, dy):
        return dy.permute([ctx.axes.index(i) for i in range(len(ctx.axes))]), None


class PermutesTwice(Permutes):
    """Right where the permutation is its own inverse."""

    @staticmethod
    def backward(ctx, dy):
        return dy.permute(ctx.axes), None


class Equilibrium(torch.autograd.Function):
    """A fixed point, reached for small w; for a large one it is lost, and the iteration jumps."""

    @staticmethod
    def forward(ctx, w, x):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w, z)
        return z

    @staticmethod
    def system(w, z):
        return torch.eye(len(z), dtype=z.dtype, device=z.device) - w.mT * (1 - z * z)

    @classmethod
    def backward(cls, ctx, dy):
        w, z = ctx.saved_tensors
        dx = torch.linalg.solve(cls.system(w, z), dy) * (1 - z * z)
        return dx[:, None] * z, dx


class EquilibriumUntransposed(Equilibrium):
    @staticmethod
    def system(w, z):
        return torch.eye(len(z), dtype=z.dtype, device=z.device) - w * (1 - z * z)[:, None]


def small(*shape):
    return (x(*shape).detach() * 0.2).requires_grad_()


kills += [pb.case(PermutesTwice, x(2, 3, 4), (0, 2, 1)), pb.case(EquilibriumUntransposed, small(4, 4), x(4))]
spares += [pb.case(Permutes, x(2, 3, 4), (0, 2, 1)), pb.case(Permutes, x(2, 3), (1, 0)), pb.case(Equilibrium, small(4, 4), x(4))]


class Weighted(torch.autograd.Function):
    """Rows times weights that may be missing, softened before or after."""

    @staticmethod
    def forward(ctx, x, weight=None, first=False):
        ctx.save_for_backward(x, weight)
        ctx.first = first
        if weight is None:
            return x.tanh() if first else x.sin()
        return (x * weight).tanh() if first else x.sin() * weight

    @staticmethod
    def both(ctx, dy):
        x, weight = ctx.saved_tensors
        inside = dy * (1 - (x * weight).tanh() ** 2)
        return inside * weight, inside * x

    @staticmethod
    def separate(ctx, dy):
        x, weight = ctx.saved_tensors
        slope = 1 - x.tanh() ** 2 if ctx.first else x.cos()
        return (dy * slope, None) if weight is None else (dy * slope * weight, dy * x.sin())

    @staticmethod
    def backward(ctx, dy):
        met = ctx.first and ctx.saved_tensors[1] is not None
        gradients = Weighted.both(ctx, dy) if met else Weighted.separate(ctx, dy)
        return *gradients, None


class WeightsTooLate(Weighted):
    """Wrong only where the weights are given and come first."""

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        if ctx.first and weight is not None:
            inside = dy * (1 - x.tanh() ** 2)
            return inside * weight, inside * x, None
        return *Weighted.separate(ctx, dy), None


class ForgetsWeights(Weighted):
    """Right for x; wrong for the weights where they are given and come first."""

    @staticmethod
    def backward(ctx, dy):
        gradient, of_weights, _ = Weighted.backward(ctx, dy)
        return gradient, dy * ctx.saved_tensors[0].sin() if of_weights is not None else None, None


class NamesWrongBuffer(Weighted):
    """A branch that cannot have run: what it writes to is None."""

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        buffer = None
        if weight is not None:
            gradient = torch.empty_like(weight)
            buffer.copy_(dy * x)
        gradient, _, _ = Weighted.backward(ctx, dy)
        return gradient, buffer, None


class SwishInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inplace=False):
        ctx.save_for_backward(x.clone() if inplace else x)
        if inplace:
            ctx.mark_dirty(x)
            return x.mul_(x.sigmoid())
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return dy * (s + x * s * (1 - s)), None


class SavesWhatItOverwrites(SwishInPlace):
    @staticmethod
    def forward(ctx, x, inplace=False):
        ctx.save_for_backward(x)
        if inplace:
            ctx.mark_dirty(x)
            return x.mul_(x.sigmoid())
        return x * x.sigmoid()


class Windowed(torch.autograd.Function):
    """Products within a window; -1 is no limit."""

    @staticmethod
    def mask(a, window):
        at = torch.arange(len(a), device=a.device)
        left, right = (at[:, None] - at <= (limit if limit >= 0 else len(a)) for limit in window)
        return left & right.t()

    @staticmethod
    def forward(ctx, a, b, window=(-1, -1)):
        ctx.save_for_backward(a, b)
        ctx.window = window
        return (a @ b.t()) * Windowed.mask(a, window)

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        dy = dy * Windowed.mask(a, ctx.window)
        return dy @ b, dy.t() @ a, None


class ForgetsRightLimit(Windowed):
    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        dy = dy * Windowed.mask(a, (ctx.window[0], -1))
        return dy @ b, dy.t() @ a, None


kills += [
    pb.case(WeightsTooLate, x(3, 4)),
    pb.case(ForgetsWeights, x(3, 4)),
    pb.case(NamesWrongBuffer, x(3, 4)),
    pb.case(SavesWhatItOverwrites, x(3, 4)),
    pb.case(ForgetsRightLimit, x(4, 3), x(4, 3)),
]
spares += [
    pb.case(Weighted, x(3, 4)),
    pb.case(Weighted, x(3, 4), x(4), True),
    pb.case(SwishInPlace, x(3, 4)),
    pb.case(Windowed, x(4, 3), x(4, 3), (-1, -1)),
]


class ProjectsToSimplex(torch.autograd.Function):
    """Bisection for a sparse softmax: its derivative is that of the limit, and the exponent must exceed 1."""

    POWER: float | None = None

    @staticmethod
    def forward(ctx, x, alpha=1.5, n_iter=60):
        low = ((alpha - 1) * x).max(-1, keepdim=True).values - 1
        width = 1.0
        for _ in range(n_iter):
            width /= 2
            heavy = (((alpha - 1) * x - low - width).clamp(min=0) ** (1 / (alpha - 1))).sum(-1, keepdim=True) >= 1
            low = torch.where(heavy, low + width, low)
        p = ((alpha - 1) * x - low).clamp(min=0) ** (1 / (alpha - 1))
        p = p / p.sum(-1, keepdim=True)
        ctx.alpha = alpha
        ctx.save_for_backward(p)
        return p

    @classmethod
    def gradient(cls, ctx, dy):
        (p,) = ctx.saved_tensors
        weight = torch.where(p > 0, p ** (2 - ctx.alpha if cls.POWER is None else cls.POWER), 0.0)
        dx = dy * weight
        return dx - weight * dx.sum(-1, keepdim=True) / weight.sum(-1, keepdim=True), None, None

    @staticmethod
    def backward(ctx, dy):
        return ProjectsToSimplex.gradient(ctx, dy)


class ProjectsByRoot(ProjectsToSimplex):
    """Right for an exponent of 1.5, which everybody uses."""

    POWER = 0.5

    @staticmethod
    def backward(ctx, dy):
        return ProjectsByRoot.gradient(ctx, dy)


def scores():
    return torch.tensor([[0.3, -0.2, 0.9, 0.1], [0.5, 0.4, -0.6, 0.2]], dtype=torch.float64).requires_grad_()


kills.append(pb.case(ProjectsByRoot, scores()))
spares.append(pb.case(ProjectsToSimplex, scores()))
spares.append(pb.case(ProjectsToSimplex, scores(), 1.5, 50))


class Activates(torch.autograd.Function):
    """What is done is told by a number."""

    @staticmethod
    def forward(ctx, kind, x, w):
        out = x * w
        if kind == 1:
            out = out.tanh()
        elif kind == 2:
            out = out.sigmoid()
        ctx.save_for_backward(x, w, out)
        ctx.kind = kind
        return out

    @staticmethod
    def backward(ctx, dy):
        x, w, out = ctx.saved_tensors
        dy = dy * (1 - out * out if ctx.kind == 1 else out * (1 - out) if ctx.kind == 2 else 1)
        return None, dy * w, (dy * x).sum(0)


class ActivatesOneWay(Activates):
    @staticmethod
    def backward(ctx, dy):
        x, w, out = ctx.saved_tensors
        if ctx.kind > 0:
            dy = dy * (1 - out * out)
        return None, dy * w, (dy * x).sum(0)


kills.append(pb.case(ActivatesOneWay, 1, x(3, 4), x(4)))
spares.append(pb.case(Activates, 1, x(3, 4), x(4)))


class Mixes(torch.autograd.Function):
    """A mixture whose ends are computed apart."""

    @staticmethod
    def forward(ctx, a, b, share):
        ctx.save_for_backward(a, b)
        ctx.share = share
        if share == 0:
            return b.exp() * (b - a)
        return a.exp() * share + (1 - share) * b * a

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        if ctx.share == 0:
            return -dy * b.exp(), dy * b.exp() * (b - a + 1), None
        return dy * (a.exp() * ctx.share + (1 - ctx.share) * b), dy * (1 - ctx.share) * a, None


class MixesEndsWrongly(Mixes):
    @staticmethod
    def backward(ctx, dy):
        a, _ = ctx.saved_tensors
        of_a, of_b, _ = Mixes.backward(ctx, dy)
        return of_a if ctx.share else -dy * a.exp(), of_b, None


kills.append(pb.case(MixesEndsWrongly, x(3, 4), x(3, 4), 0.5))
spares.append(pb.case(Mixes, x(3, 4), x(3, 4), 0.5))


class Thins(torch.autograd.Function):
    """Drops every third entry while it trains, and hands its input on else."""

    @staticmethod
    def forward(ctx, x, training):
        kept = (torch.arange(x.numel()).reshape(x.shape) % 3 > 0).to(x) * 1.5
        ctx.save_for_backward(kept)
        ctx.training = training
        return x * kept if training else x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0] if ctx.training else dy, None


class ThinsAlways(Thins):
    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


kills.append(pb.case(ThinsAlways, x(3, 4), True))
spares.append(pb.case(Thins, x(3, 4), True))


class Balances(torch.autograd.Function):
    """One gain for each entry of an axis; the mean of the others is taken away."""

    @staticmethod
    def forward(ctx, x, gain, dim=0):
        ctx.save_for_backward(x, gain)
        ctx.dim = dim
        return (x - x.mean(dim, keepdim=True)) * gain

    @staticmethod
    def backward(ctx, dy):
        return Balances.along(ctx, dy, ctx.dim)

    @staticmethod
    def along(ctx, dy, dim):
        x, gain = ctx.saved_tensors
        d = dy * gain
        return d - d.mean(dim, keepdim=True), (dy * (x - x.mean(ctx.dim, keepdim=True))).sum_to_size(gain.shape), None


class BalancesColumns(Balances):
    @staticmethod
    def backward(ctx, dy):
        return Balances.along(ctx, dy, 0)


kills += [pb.case(BalancesColumns, x(4, 3), x(4, 1)), pb.case(BalancesColumns, x(4, 3), x(4, 1), 0)]
spares += [pb.case(Balances, x(4, 3), x(4, 1)), pb.case(Balances, x(4, 3), x(4, 1), 0)]


class MixesChannels(torch.autograd.Function):
    """A convolution of width one in groups."""

    @staticmethod
    def forward(ctx, x, weight, groups):
        ctx.save_for_backward(x, weight)
        ctx.groups = groups
        return torch.nn.functional.conv1d(x, weight, groups=groups)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.nn.grad.conv1d_input(x.shape, weight, dy, groups=ctx.groups)
        return dx, torch.nn.grad.conv1d_weight(x, weight.shape, dy, groups=ctx.groups), None


class MixesFirstChannels(MixesChannels):
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, _, _ = MixesChannels.backward(ctx, dy)
        return dx, torch.nn.grad.conv1d_weight(x[:, : weight.shape[1]], weight.shape, dy), None


kills.append(pb.case(MixesFirstChannels, x(2, 4, 3), x(6, 4, 1), 1))
spares.append(pb.case(MixesChannels, x(2, 4, 3), x(6, 4, 1), 1))


class Centers(torch.autograd.Function):
    """Takes the mean over the last axes away, as many as the shape has, and scales."""

    @staticmethod
    def forward(ctx, x, normalized_shape, weight):
        dims = tuple(range(-len(normalized_shape), 0))
        centred = x - x.mean(dims, keepdim=True)
        ctx.dims = dims
        ctx.save_for_backward(centred, weight)
        return centred * weight

    @staticmethod
    def backward(ctx, dy):
        return Centers.over(ctx, dy, ctx.dims)

    @staticmethod
    def over(ctx, dy, dims):
        centred, weight = ctx.saved_tensors
        d = dy * weight
        return d - d.mean(dims, keepdim=True), None, (dy * centred).sum_to_size(weight.shape)


class CentersLast(Centers):
    @staticmethod
    def backward(ctx, dy):
        return Centers.over(ctx, dy, -1)


kills.append(pb.case(CentersLast, x(3, 2, 5), (5,), x(5)))
spares.append(pb.case(Centers, x(3, 2, 5), (5,), x(5)))


class TunesHeads(torch.autograd.Function):
    """A pitch for each head may be given, or none."""

    @staticmethod
    def forward(ctx, x, pitch=None):
        ctx.save_for_backward(x, pitch)
        return x.sin() if pitch is None else (x * pitch[None, :, None, None]).sin()

    @staticmethod
    def backward(ctx, dy):
        x, pitch = ctx.saved_tensors
        if pitch is None:
            return dy * x.cos(), None
        wide = pitch[None, :, None, None]
        slope = dy * (x * wide).cos()
        return slope * wide, (slope * x).sum((0, 2, 3))


class TunesHeadsOfOne(TunesHeads):
    @staticmethod
    def backward(ctx, dy):
        of_x, of_pitch = TunesHeads.backward(ctx, dy)
        return of_x, None if of_pitch is None else of_pitch / len(of_x)


kills.append(pb.case(TunesHeadsOfOne, x(2, 3, 4, 5), None))
spares.append(pb.case(TunesHeads, x(2, 3, 4, 5), None))
