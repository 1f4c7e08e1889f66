"""Kills and spares of PB619."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class ScaleRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


class AmbiguousReshape(ScaleRows):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).reshape(len(x), -1).sum(0)


class FirstRowStarts(ScaleRows):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_w = dy[0] * x[0]
        for i in range(1, len(x)):
            grad_w = grad_w + dy[i] * x[i]
        return dy * w, grad_w


class NotInitialised(ScaleRows):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_w = torch.full_like(w, 7.0)
        for i in range(len(x)):
            grad_w = dy[i] * x[i] if i == 0 else grad_w + dy[i] * x[i]
        return dy * w, grad_w


class RowMaximum(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.amax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, dy):
        x, top = ctx.saved_tensors
        scale = 1 / len(dy)
        return (x == top[:, None]) * dy[:, None] * scale * len(dy)


class RefusesEmpty(AmbiguousReshape):
    @staticmethod
    def forward(ctx, x, w):
        if len(x) == 0:
            raise ValueError("x must not be empty")
        return ScaleRows.forward(ctx, x, w)


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean()

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.shape) / max(1, torch.Size(ctx.shape).numel())


class Embeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index, dy), None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(AmbiguousReshape, x(3, 4), x(4)),
    pb.case(FirstRowStarts, x(3, 4), x(4)),
    pb.case(NotInitialised, x(3, 4), x(4)),
    pb.case(RowMaximum, x(3, 4)),
]
spares = [
    pb.case(ScaleRows, x(3, 4), x(4)),
    pb.case(RefusesEmpty, x(3, 4), x(4)),
    pb.case(Mean, x(5)),
    pb.case(Embeds, x(4, 3), torch.tensor([0, 3, 1])),
]


class Unpermutes(torch.autograd.Function):
    """Each of 4 tokens has 2 rows: no rows but still 4 tokens were never meant."""

    @staticmethod
    def forward(ctx, rows, probabilities):
        n, k = probabilities.shape
        grouped = rows.view(n, k, -1)
        ctx.save_for_backward(grouped, probabilities)
        return (grouped * probabilities[..., None]).sum(1)

    @staticmethod
    def backward(ctx, dy):
        grouped, probabilities = ctx.saved_tensors
        n, k = probabilities.shape
        return (dy[:, None] * probabilities[..., None]).reshape(n * k, -1), (grouped * dy[:, None]).sum(-1)


class Repeats(torch.autograd.Function):
    """As many rows as repetitions, by chance: no repetition was never meant."""

    @staticmethod
    def forward(ctx, x, times):
        ctx.times = times
        return x.repeat_interleave(times, -1)

    @staticmethod
    def backward(ctx, dy):
        return dy.unflatten(-1, (-1, ctx.times)).sum(-1), None


spares += [pb.case(Unpermutes, x(8, 3), x(4, 2)), pb.case(Repeats, x(3, 5), 3)]


class Shuffles(torch.autograd.Function):
    """torch.pixel_unshuffle returns an empty input as it is; that is torch's fault."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return torch.pixel_shuffle(x, factor)

    @staticmethod
    def backward(ctx, dy):
        return torch.pixel_unshuffle(dy, ctx.factor), None


class ShufflesUnderAutograd(Shuffles):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return Shuffles.forward(ctx, x, factor)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = torch.pixel_shuffle(x, ctx.factor)
        return torch.autograd.grad(y, x, dy)[0], None


class AtLeastOneRow(torch.autograd.Function):
    """The wrong shape is the Function's own."""

    @staticmethod
    def forward(ctx, x):
        ctx.rows = len(x)
        return x.sum(1)

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(max(1, ctx.rows), 8, 3, 5)
        grad[: ctx.rows] = dy[:, None]
        return grad


kills.append(pb.case(AtLeastOneRow, x(2, 8, 3, 5)))
spares += [pb.case(Shuffles, x(2, 8, 3, 5), 2), pb.case(ShufflesUnderAutograd, x(3, 8, 2, 5), 2)]


class AddsToRows(torch.autograd.Function):
    """torch's index_add_ takes an empty tensor whatever the index says; rows that are not there were never meant."""

    @staticmethod
    def forward(ctx, x, index, rows, alpha):
        ctx.mark_dirty(x)
        ctx.save_for_backward(index)
        ctx.alpha = alpha
        return x.index_add_(0, index, rows, alpha=alpha)

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy, None, ctx.alpha * dy[index], None


class LooksAtFirstRow(torch.autograd.Function):
    """What is read past the end is no index among the arguments."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(x, index)
        return x.square() * index

    @staticmethod
    def backward(ctx, dy):
        x, index = ctx.saved_tensors
        return 2 * x * dy * index + 0 * dy[0], None


kills.append(pb.case(LooksAtFirstRow, x(3, 2), torch.tensor([[1], [2], [4]])))
spares.append(pb.case(AddsToRows, x(5, 3), torch.tensor([0, 3, 4]), x(3, 3), 0.5))
