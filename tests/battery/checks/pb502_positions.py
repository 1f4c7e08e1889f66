"""Kills and spares of PB502 with blanks, skipped entries and ratios."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class TurnsPages(torch.autograd.Function):
    """Pages of lines are turned by an offset, which comes after four sizes."""

    @staticmethod
    def forward(ctx, x, pages, lines, columns, letters, offset):
        ctx.offset = offset
        return torch.roll(x.view(pages, lines, columns, letters), offset, 1)

    @staticmethod
    def backward(ctx, dy):
        return torch.roll(dy, -ctx.offset, 1), None, None, None, None, None


class TurnsPagesOn(TurnsPages):
    @staticmethod
    def backward(ctx, dy):
        return torch.roll(dy, ctx.offset, 1), None, None, None, None, None


kills.append(pb.case(TurnsPagesOn, x(2, 3, 4, 5), 2, 3, 4, 5, 0))
spares.append(pb.case(TurnsPages, x(2, 3, 4, 5), 2, 3, 4, 5, 0))


class Samples(torch.autograd.Function):
    """Values between entries, at a rate: how many there are is rounded."""

    @staticmethod
    def weights(count, many, step, like):
        at = torch.arange(many, dtype=like.dtype, device=like.device) * step
        return (1 - (at[:, None] - torch.arange(count, dtype=like.dtype, device=like.device)).abs()).clamp(min=0)

    @staticmethod
    def forward(ctx, x, rate):
        ctx.count, ctx.rate = len(x), rate
        return Samples.weights(len(x), int(len(x) * rate), 1 / rate, x) @ x

    @staticmethod
    def backward(ctx, dy):
        return Samples.weights(ctx.count, len(dy), 1 / ctx.rate, dy).mT @ dy, None


class SamplesByCount(Samples):
    @staticmethod
    def backward(ctx, dy):
        return Samples.weights(ctx.count, len(dy), ctx.count / max(len(dy), 1), dy).mT @ dy, None


kills.append(pb.case(SamplesByCount, x(6), 2.0))
spares.append(pb.case(Samples, x(6), 2.0))


class Aligns(torch.autograd.Function):
    """Scores of one label or the blank; the two are never the same class, or the second write would replace the first."""

    @staticmethod
    def forward(ctx, scores, labels, blank):
        if scores.shape[1] < 2:
            raise ValueError("there must be another class than the blank")
        rows = torch.arange(len(labels))
        ctx.save_for_backward(scores, labels)
        ctx.blank = blank
        return scores[rows, labels].exp() + scores[:, blank].square()

    @staticmethod
    def slopes(ctx, dy, blank):
        scores, labels = ctx.saved_tensors
        d, rows = torch.zeros_like(scores), torch.arange(len(labels))
        d[rows, labels] = dy * scores[rows, labels].exp()
        d[:, blank] = 2 * dy * scores[:, ctx.blank]
        return d, None, None

    @staticmethod
    def backward(ctx, dy):
        return Aligns.slopes(ctx, dy, ctx.blank)


class AlignsToTheFirst(Aligns):
    @staticmethod
    def backward(ctx, dy):
        return Aligns.slopes(ctx, dy, 0)


kills.append(pb.case(AlignsToTheFirst, x(3, 5), torch.tensor([1, 3, 2]), 0))
spares.append(pb.case(Aligns, x(3, 5), torch.tensor([1, 3, 2]), 0))


class AddsRows(torch.autograd.Function):
    """Sums rows of a table; the row to be left out counts as zero."""

    @staticmethod
    def forward(ctx, table, index, padding_idx):
        keep = (index != padding_idx).to(table.dtype)
        ctx.save_for_backward(index, keep)
        ctx.rows = len(table)
        return (table[index] * keep[..., None]).sum(-2)

    @staticmethod
    def backward(ctx, dy):
        index, keep = ctx.saved_tensors
        spread = dy[..., None, :] * keep[..., None]
        return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), spread.flatten(0, -2)), None, None


class AddsAllRows(AddsRows):
    @staticmethod
    def backward(ctx, dy):
        index, _ = ctx.saved_tensors
        spread = dy[..., None, :].expand(*index.shape, dy.shape[-1])
        return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), spread.flatten(0, -2)), None, None


class LooksUpRows(torch.autograd.Function):
    """As torch's embedding: the row has a value, and is not trained."""

    @staticmethod
    def forward(ctx, table, index, padding_idx):
        ctx.save_for_backward(index)
        ctx.rows, ctx.padding_idx = len(table), padding_idx
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        d = dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), dy.flatten(0, -2))
        d[ctx.padding_idx] = 0
        return d, None, None


kills.append(pb.case(AddsAllRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))
spares.append(pb.case(AddsRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))
spares.append(pb.case(LooksUpRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))


class OneAgainstAll(torch.autograd.Function):
    """A label may be the number of classes: none of them."""

    @staticmethod
    def forward(ctx, scores, labels):
        sign = torch.where(torch.arange(scores.shape[1], device=scores.device) == labels[:, None], 1.0, -1.0).to(scores)
        ctx.save_for_backward(scores, sign)
        return torch.nn.functional.softplus(-sign * scores).sum(1)

    @staticmethod
    def backward(ctx, dy):
        scores, sign = ctx.saved_tensors
        return -dy[:, None] * sign * torch.sigmoid(-sign * scores), None


class OneAgainstAllOfLast(OneAgainstAll):
    @staticmethod
    def forward(ctx, scores, labels):
        out = OneAgainstAll.forward(ctx, scores, labels)
        last = labels.clamp(max=scores.shape[1] - 1)
        ctx.save_for_backward(scores, 2 * torch.nn.functional.one_hot(last, scores.shape[1]).to(scores) - 1)
        return out


spares.append(pb.case(LooksUpRows, x(6, 4), torch.tensor([[1, 3], [0, 1]]), 0))


kills.append(pb.case(OneAgainstAllOfLast, x(4, 3), torch.tensor([0, 2, 1, 2])))
spares.append(pb.case(OneAgainstAll, x(4, 3), torch.tensor([0, 2, 1, 2])))
