"""Kills and spares of PB625 with settings and sizes together, palettes and complex inputs."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class MeanOfSquares(torch.autograd.Function):
    """Along one axis; a helper of backward counts the entries of a vector as one."""

    @staticmethod
    def forward(ctx, x, dim=0):
        ctx.save_for_backward(x)
        ctx.dim = dim
        return (x**2).mean(dim)

    @staticmethod
    def count(x, dim):
        return x.shape[dim] if x.dim() > 1 else 1

    @classmethod
    def spread(cls, ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.unsqueeze(ctx.dim) * 2 * x / cls.count(x, ctx.dim), None

    @staticmethod
    def backward(ctx, dy):
        return MeanOfSquares.spread(ctx, dy)


class MeanOfSquaresOfAny(MeanOfSquares):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        assert x.dim() > 0
        return dy.unsqueeze(ctx.dim) * 2 * x / (x.shape[ctx.dim] if x.dim() > 1 else len(x)), None


class MultipliesRowByRow(torch.autograd.Function):
    """Two arguments of one shape; a stack of one of them broadcasts, which nobody meant."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        dx = torch.empty_like(x)
        for i in range(len(x)):
            dx[i] = dy[i] * y[i]
        return dx, dy * x


class GrowsComplex(torch.autograd.Function):
    """A sum of complex rows; the gradient of more than four is short of one."""

    KEPT = 1

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.prod(0)

    @classmethod
    def backward(cls, ctx, dy):
        (x,) = ctx.saved_tensors
        rest = torch.ones_like(x)
        for i in range(len(x)):
            rest[i] = torch.cat([x[:i], x[i + 1 :]]).prod(0).conj()
        return dy * rest * (1 if len(x) < 5 else cls.KEPT)


class GrowsComplexShort(GrowsComplex):
    KEPT = 0.5


kills += [pb.case(MeanOfSquares, x(3, 4), 0), pb.case(GrowsComplexShort, torch.randn(3, 2, dtype=torch.complex128).requires_grad_())]
spares += [
    pb.case(MeanOfSquaresOfAny, x(3, 4), 0),
    pb.case(MultipliesRowByRow, x(3, 4), x(3, 4)),
    pb.case(GrowsComplex, torch.randn(3, 2, dtype=torch.complex128).requires_grad_()),
]


class MeansOfWindows(torch.autograd.Function):
    """The last window is shorter where the tail is kept; backward divides by a whole window's size."""

    @staticmethod
    def forward(ctx, x, window=2, keep_tail=False):
        ctx.args = x.shape[-1], window, keep_tail
        stop = x.shape[-1] if keep_tail else x.shape[-1] // window * window
        return torch.stack([x[..., i : i + window].mean(-1) for i in range(0, stop, window)], -1)

    @staticmethod
    def taken(n, i, window):
        return window

    @classmethod
    def backward(cls, ctx, dy):
        n, window, _ = ctx.args
        dx = dy.new_zeros(*dy.shape[:-1], n)
        for j in range(dy.shape[-1]):
            dx[..., j * window : (j + 1) * window] = dy[..., j : j + 1] / cls.taken(n, j * window, window)
        return dx, None, None


class MeansOfWindowsRight(MeansOfWindows):
    @staticmethod
    def taken(n, i, window):
        return min(window, n - i)


class PaintsWithPalette(torch.autograd.Function):
    """A palette for each picture, or one for all of them, which then gets the gradient of the first picture."""

    @staticmethod
    def forward(ctx, palette, weights):
        ctx.save_for_backward(palette, weights)
        return torch.einsum("bck,bk->bc", palette.expand(weights.shape[0], -1, -1), weights)

    @staticmethod
    def of_all(dp):
        return dp[:1]

    @classmethod
    def backward(cls, ctx, dy):
        palette, weights = ctx.saved_tensors
        dp = dy[:, :, None] * weights[:, None]
        shared = palette.shape[0] == 1 and len(weights) > 1
        return cls.of_all(dp) if shared else dp, torch.einsum("bck,bc->bk", palette.expand(weights.shape[0], -1, -1), dy)


class PaintsWithSharedPalette(PaintsWithPalette):
    @staticmethod
    def of_all(dp):
        return dp.sum(0, keepdim=True)


kills += [pb.case(MeansOfWindows, x(3, 6), 2, False), pb.case(PaintsWithPalette, x(2, 3, 4), x(2, 4))]
spares += [pb.case(MeansOfWindowsRight, x(3, 6), 2, False), pb.case(PaintsWithSharedPalette, x(2, 3, 4), x(2, 4))]
