"""Kills and spares of PB501 in branches that the sample does not take."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


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
