"""Kills and spares of PB625 whose sizes belong together."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class Rotates(torch.autograd.Function):
    """An odd last axis was never meant; forward takes it."""

    @staticmethod
    def forward(ctx, q, cos, sin):
        ctx.save_for_backward(cos, sin)
        a, b = q.chunk(2, -1)
        return q * cos + torch.cat((-b, a), -1) * sin

    @staticmethod
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        a, b = (dy * sin).chunk(2, -1)
        return dy * cos + torch.cat((b, -a), -1), None, None


class Samples(torch.autograd.Function):
    """As many channels as coordinates, by chance."""

    @staticmethod
    def forward(ctx, image, points):
        i, j = points[:, 0], points[:, 1]
        a = i - i.floor()
        low = image[:, i.floor().long(), j.floor().long()]
        high = image[:, i.floor().long() + 1, j.floor().long()]
        ctx.save_for_backward(image, points, low, high)
        return low * (1 - a) + high * a

    @staticmethod
    def backward(ctx, dy):
        image, points, low, high = ctx.saved_tensors
        i, j = points[:, 0].floor().long(), points[:, 1].floor().long()
        a = points[:, 0] - i
        grad = torch.zeros(image.shape, dtype=image.dtype, device=image.device)
        for at, weight in ((i, 1 - a), (i + 1, a)):
            grad.index_put_((torch.arange(len(image), device=image.device)[:, None], at[None], j[None]), dy * weight, accumulate=True)
        along = (dy * (high - low)).sum(0)
        return grad, torch.stack((along, torch.zeros_like(along)), 1)


class SparseProduct(torch.autograd.Function):
    """A dense product of all pairs on the way: 65,536 rows would take gigabytes."""

    @staticmethod
    def forward(ctx, values, dense):
        n = dense.shape[0]
        index = torch.arange(len(values), device=values.device) % n
        ctx.save_for_backward(values, dense, index)
        return torch.zeros_like(dense).index_add(0, index, values[:, None] * dense[index.flip(0)])

    @staticmethod
    def backward(ctx, dy):
        values, dense, index = ctx.saved_tensors
        pairs = dy @ dense.t()
        other = torch.zeros_like(dense).index_add(0, index.flip(0), values[:, None] * dy[index])
        return pairs[index, index.flip(0)], other


def inside(count):
    return torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 + 0.3


angles = torch.tensor([[0.3, -0.2, 0.3, -0.2], [1.1, 0.4, 1.1, 0.4], [0.5, 2.0, 0.5, 2.0]], dtype=torch.float64)
spares += [
    pb.case(Rotates, x(3, 4), angles.cos(), angles.sin()),
    pb.case(Samples, x(2, 5, 5), inside(7).requires_grad_()),
    pb.case(SparseProduct, x(3), x(4, 2)),
]


class Gated(torch.autograd.Function):
    """Two halves of one tensor: forward takes an odd width only where one half has a single column, by broadcasting."""

    @staticmethod
    def forward(ctx, packed):
        gate, value = packed.chunk(2, -1)
        ctx.save_for_backward(gate, value)
        return gate.sigmoid() * value

    @staticmethod
    def backward(ctx, dy):
        gate, value = ctx.saved_tensors
        s = gate.sigmoid()
        return torch.cat([dy * value * s * (1 - s), dy * s], -1)


spares.append(pb.case(Gated, torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(3, 8).requires_grad_()))


class TurnsFirstColumns(torch.autograd.Function):
    """The first columns by pairs, as far as there are angles."""

    @staticmethod
    def turned(x, cos, sin):
        r = cos.shape[-1]
        a, b, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        r = cos.shape[-1]
        a, b, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    @staticmethod
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        return TurnsFirstColumns.turned(dy, cos, -sin), None, None


angles = torch.linspace(0, 2, 10, dtype=torch.float64).reshape(5, 2)
spares.append(
    pb.case(TurnsFirstColumns, torch.linspace(-1, 2, 60, dtype=torch.float64).reshape(3, 5, 4).requires_grad_(), angles.cos(), angles.sin())
)


class NormalisesGroups(torch.autograd.Function):
    """As many groups as samples, by chance: ten groups of four channels were never meant, though forward can compute something for them."""

    @staticmethod
    def forward(ctx, x, groups):
        z = x.reshape(len(x), groups, -1)
        rstd = (z.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, rstd)
        ctx.groups = groups
        return (z * rstd).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, rstd = ctx.saved_tensors
        entries = x[0, 0].numel() * (x.shape[1] // ctx.groups)
        z, d = x.reshape(len(x), ctx.groups, -1), dy.reshape(len(x), ctx.groups, -1)
        return (rstd * d - z * rstd**3 * (z * d).sum(-1, keepdim=True) / entries).view(x.shape), None


class NormalisesEightSamples(NormalisesGroups):
    """Wrong for more than eight samples, whatever the groups are."""

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gradient, _ = NormalisesGroups.backward(ctx, dy)
        gradient[8:] = 0
        return gradient, None


kills.append(pb.case(NormalisesEightSamples, x(2, 4, 5), 2))
spares.append(pb.case(NormalisesGroups, x(2, 4, 5), 2))


class BiasInLastColumn(torch.autograd.Function):
    """The weights have a column more than x has rows; how many rows they have is another matter, though it may be as many as x has."""

    @staticmethod
    def forward(ctx, w, x):
        ctx.save_for_backward(w, x)
        return w[:, :-1] @ x[: w.shape[1] - 1] + w[:, -1:]

    @staticmethod
    def backward(ctx, dy):
        w, x = ctx.saved_tensors
        return torch.cat([dy @ x.t(), dy.sum(1, keepdim=True)], 1), w[:, :-1].t() @ dy


spares.append(pb.case(BiasInLastColumn, x(3, 4), x(3, 2)))


class SumsSegments(torch.autograd.Function):
    """Running sums within segments, which forward takes not to overlap."""

    @staticmethod
    def forward(ctx, starts, counts, x):
        ctx.save_for_backward(starts, counts)
        out = torch.zeros_like(x)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=False):
            out[start : start + count] = x[start : start + count].cumsum(0)
        return out

    @staticmethod
    def backward(ctx, dy):
        starts, counts = ctx.saved_tensors
        dx = torch.zeros_like(dy)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=False):
            dx[start : start + count] = dy[start : start + count].flip(0).cumsum(0).flip(0)
        return None, None, dx


class TakesRows(torch.autograd.Function):
    """Backward adds the first 32 of the rows that were taken."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, dy.shape[1]).index_add(0, index[:32], dy[:32]), None


class InterpolatesKnots(torch.autograd.Function):
    """A table of one knot is none: what forward computes from it was never meant."""

    @staticmethod
    def forward(ctx, x, knots, resolution):
        at = x * (resolution - 1)
        low = at.floor().clamp(0, resolution - 2).long()
        ctx.save_for_backward(knots, low, at - low)
        ctx.resolution = resolution
        return knots[low] * (1 - (at - low))[:, None] + knots[low + 1] * (at - low)[:, None]

    @staticmethod
    def backward(ctx, dy):
        knots, low, part = ctx.saved_tensors
        dknots = torch.zeros_like(knots).index_add(0, low, dy * (1 - part)[:, None]).index_add(0, low + 1, dy * part[:, None])
        return (dy * (knots[low + 1] - knots[low])).sum(1) * (ctx.resolution - 1), dknots, None


kills.append(pb.case(TakesRows, x(5, 3), torch.tensor([0, 2, 3, 4])))
spares.append(pb.case(SumsSegments, torch.tensor([0, 3]), torch.tensor([3, 4]), x(7)))
spares.append(pb.case(InterpolatesKnots, torch.linspace(0.05, 0.9, 5, dtype=torch.float64).requires_grad_(), x(6, 2), 6))


class WithBiasColumn(torch.autograd.Function):
    """x has a row less than w has columns; a single row stands for as many as x has."""

    @staticmethod
    def forward(ctx, w, x):
        ctx.save_for_backward(w, x)
        rows = w[:, :-1].t()[:, :, None] * x[: max(w.shape[1] - 1, 1), None] if len(x) >= w.shape[1] - 1 else None
        if rows is None:
            raise ValueError("x has too few rows")
        return rows.sum(0) + w[:, -1:]

    @staticmethod
    def backward(ctx, dy):
        w, x = ctx.saved_tensors
        n = w.shape[1] - 1
        return torch.cat([dy @ x[:n].t(), dy.sum(1, keepdim=True)], 1), w[:, :n].t() @ dy


spares.append(pb.case(WithBiasColumn, x(5, 4), x(3, 2)))


class MixesByWeights(torch.autograd.Function):
    """Weights that sum to one: backward takes the last one for what the others leave."""

    @staticmethod
    def forward(ctx, x, shares):
        ctx.save_for_backward(shares)
        return (x * shares).sum(-1)

    @staticmethod
    def backward(ctx, dy):
        (shares,) = ctx.saved_tensors
        last = 1 - shares[:-1].sum(0, keepdim=True)
        return dy[:, None] * torch.cat([shares[:-1], last]), None


spares.append(pb.case(MixesByWeights, x(4, 3), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)))


class LooksUp(torch.autograd.Function):
    """With fewer rows than the number of the padding row there is no such row."""

    @staticmethod
    def forward(ctx, table, rows, padding_idx):
        ctx.save_for_backward(rows)
        ctx.count, ctx.padding = table.shape[0], padding_idx
        return table[rows].masked_fill((rows == padding_idx)[:, None], 0)

    @staticmethod
    def backward(ctx, dy):
        (rows,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.count, dy.shape[1]).index_add_(0, rows, dy)
        grad[ctx.padding] = 0
        return grad, None, None


class CombinesExperts(torch.autograd.Function):
    """Rows for every pair of a token and one of its experts; with fewer rows forward cuts the features up instead."""

    @staticmethod
    def forward(ctx, rows, place, shares):
        ctx.save_for_backward(rows, place, shares)
        return (rows[place].view(*shares.shape, -1) * shares[..., None]).sum(1)

    @staticmethod
    def backward(ctx, dy):
        rows, place, shares = ctx.saved_tensors
        apart = (dy[:, None, :] * shares[..., None]).reshape(-1, dy.shape[1])
        grad = torch.empty_like(apart)
        grad[place] = apart
        return grad, None, (rows[place].view(*shares.shape, -1) * dy[:, None, :]).sum(-1)


spares += [
    pb.case(LooksUp, x(5, 3), torch.tensor([0, 4, 1, 2]), 1),
    pb.case(CombinesExperts, x(6, 4), torch.tensor([3, 0, 5, 1, 2, 4]), x(3, 2)),
]


class SumsTwoLists(torch.autograd.Function):
    """Rows of two lists, each with the place that it goes to; the lists are as long as each other in the sample."""

    @staticmethod
    def forward(ctx, a, b, at_a, at_b):
        ctx.save_for_backward(at_a, at_b)
        return a.new_zeros(8, a.shape[1]).index_add(0, at_a, a).index_add(0, at_b, b)

    @classmethod
    def backward(cls, ctx, dy):
        at_a, at_b = ctx.saved_tensors
        return dy[at_a], cls.of_second(dy[at_b], len(at_a)), None, None

    @staticmethod
    def of_second(rows, length):
        return rows[:length]


class SumsTwoListsOfAnyLength(SumsTwoLists):
    @staticmethod
    def of_second(rows, length):
        return rows


class SquareProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class SummedAlongInner(SquareProduct):
    """The gradient of w is cut to as many rows as there are columns of the output."""

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), torch.nn.functional.pad((x.t() @ dy)[: dy.shape[1]], (0, 0, 0, max(0, w.shape[0] - dy.shape[1])))


kills.append(pb.case(SumsTwoLists, x(4, 2), x(4, 2), torch.tensor([0, 1, 2, 3]), torch.tensor([2, 3, 4, 7])))
kills.append(pb.case(SummedAlongInner, x(4, 4), x(4, 4)))
spares.append(pb.case(SumsTwoListsOfAnyLength, x(4, 2), x(4, 2), torch.tensor([0, 1, 2, 3]), torch.tensor([2, 3, 4, 7])))
spares.append(pb.case(SquareProduct, x(4, 4), x(4, 4)))


class SignsByMask(torch.autograd.Function):
    """A mask of zeros and ones for two rows: with three rows it is one still."""

    @staticmethod
    def forward(ctx, x, keep):
        ctx.save_for_backward(keep)
        return torch.where(keep.bool(), x, -x)

    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        return dy * (2 * keep.to(dy.dtype) - 1), None


spares.append(pb.case(SignsByMask, x(2, 4), torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0]])))
