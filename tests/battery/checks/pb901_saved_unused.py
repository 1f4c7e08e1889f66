"""Kills and spares of PB901."""

import warnings

import torch

import pullback as pb


class SavesBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.sigmoid(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        _, y = ctx.saved_tensors
        return dy * y * (1 - y)


class SavesNoise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        noise = torch.randn_like(x)
        ctx.noise = noise
        ctx.scale = scale
        return scale * x + noise

    @staticmethod
    def backward(ctx, dy):
        return ctx.scale * dy, None


class SavesInSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, w, b):
        return x * w + b, x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, b = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, w, b)

    @staticmethod
    def backward(ctx, dy, _):
        x, w, _ = ctx.saved_tensors
        return dy * w, dy * x, dy


class SavesList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.pieces = [x.detach().clone(), 2]
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.pieces[1]


class OnlyForOne(torch.autograd.Function):
    """Needs w only where x requires grad."""

    @staticmethod
    def forward(ctx, x, w, bias=None):
        ctx.save_for_backward(x, w, bias)
        y = x @ w
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, dy):
        x, w, bias = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = dy @ w.t()
        if ctx.needs_input_grad[1]:
            dw = x.t() @ dy
        if bias is not None and ctx.needs_input_grad[2]:
            db = dy.sum(0)
        return dx, dw, db


class ByFlag(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, masked):
        ctx.save_for_backward(mask)
        ctx.masked = masked
        return x * mask if masked else x * 2

    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return (dy * mask if ctx.masked else dy * 2), None, None


class Inner(torch.autograd.Function):
    """The gradient of exp(x), whose own gradient is computed from x again."""

    @staticmethod
    def forward(ctx, x, y, dy):
        ctx.save_for_backward(x, dy)
        return y * dy

    @staticmethod
    def backward(ctx, ddx):
        x, dy = ctx.saved_tensors
        return ddx * dy * x.exp(), None, ddx * x.exp()


class SecondOrder(torch.autograd.Function):
    """Needs x for the second derivative alone."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return Inner.apply(x, y.detach(), dy)


class Clamped(torch.autograd.Function):
    """Values matter only beyond the limits, where no value of the sample lies."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-100, 100)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x.abs() <= 100)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(SavesBoth, x(3, 4)),
    pb.case(SavesNoise, x(5), 2.0),
    pb.case(SavesInSetup, x(4), x(4), x(4)),
    pb.case(SavesList, x(3)),
    pb.case(lambda t: SavesBoth.apply(t * 2).sum(), x(3)),
]
spares = [
    pb.case(OnlyForOne, x(3, 4), x(4, 2), x(2)),
    pb.case(OnlyForOne, x(3, 4), x(4, 2)),
    pb.case(ByFlag, x(3), torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64), False).declare(static=("mask",)),
    pb.case(SecondOrder, x(3)),
    pb.case(Clamped, x(3)),
]


class Accumulates(torch.autograd.Function):
    """x is needed for what backward adds to an attribute of w alone."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.main_grad = w.main_grad
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        ctx.main_grad += x.t() @ dy.detach()
        return dy @ w.t(), None


def with_main_grad():
    w = x(4, 2).detach()
    w.main_grad = torch.zeros(4, 2, dtype=torch.float64)
    return w


spares.append(pb.case(Accumulates, x(3, 4), with_main_grad()).declare(static=("w",)))


class ByMode(torch.autograd.Function):
    """The counts are needed for the mean alone."""

    @staticmethod
    def forward(ctx, x, count, mode="sum"):
        ctx.save_for_backward(count)
        ctx.mode, ctx.shape = mode, x.shape
        return x.sum(0) / count if mode == "mean" else x.sum(0) + 0 * count

    @staticmethod
    def backward(ctx, dy):
        (count,) = ctx.saved_tensors
        if ctx.mode == "mean":
            dy = dy / count
        return dy.expand(ctx.shape).clone(), None, None


spares.append(pb.case(ByMode, x(3, 4), torch.full((4,), 3.0, dtype=torch.float64), "sum"))


class ByModeAndIndex(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode="sum"):
        ctx.mode = mode
        ctx.save_for_backward(x)
        return x.clone() if mode == "sum" else x.square()

    @staticmethod
    def backward(ctx, dy):
        kept = ctx.saved_tensors[0]
        return (dy if ctx.mode == "sum" else 2 * dy * kept), None


class ByModeDirectly(ByModeAndIndex):
    @staticmethod
    def backward(ctx, dy):
        if ctx.mode == "square":
            return 2 * dy * ctx.saved_tensors[0], None
        return dy, None


class OldName(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx, dy):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (x,) = ctx.saved_variables
        return 2 * dy * x


spares += [pb.case(ByModeAndIndex, x(3, 4)), pb.case(ByModeDirectly, x(3, 4)), pb.case(OldName, x(3, 4))]


class Reorders(torch.autograd.Function):
    """Of a single row, None in the place of the index gives the same."""

    @staticmethod
    def forward(ctx, rows, order):
        if order.shape != rows.shape[:1]:
            raise ValueError("order must have an entry for every row")
        ctx.save_for_backward(order.argsort())
        return rows[order]

    @staticmethod
    def backward(ctx, dy):
        (back,) = ctx.saved_tensors
        return dy[back], None


spares.append(pb.case(Reorders, x(1, 4), torch.tensor([0])))
