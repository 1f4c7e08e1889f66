"""Kills and spares of PB625."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class LastChunkOnly(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_w = torch.zeros_like(w)
        for i in range(0, len(x), 32):
            grad_w = x[i : i + 32].t() @ dy[i : i + 32]
        return dy @ w.t(), grad_w


class ForgetsTail(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        whole = x.shape[0] // 2 * 2
        return dy @ w.t(), x[:whole].t() @ dy[:whole]


class OneRowCrashes(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        x, dy = x.squeeze(), dy.squeeze()
        return dy @ w.t(), x.t() @ dy if x.dim() == 2 else x @ dy


class WrapsAt16Bits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        inverse = order.argsort().numpy()
        start = inverse.astype(np.int16) * np.int16(dy.shape[1])
        where = torch.from_numpy(start.astype(np.int64) % dy.numel())[:, None] + torch.arange(dy.shape[1])
        return dy.detach().reshape(-1)[where], None


class Gathers(WrapsAt16Bits):
    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return dy[order.argsort()], None


class SquaresBlocks(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        grad = torch.zeros_like(x)
        grad[..., :1024] = 2 * x[..., :1024] * dy[..., :1024]
        return grad


class SquaresAll(SquaresBlocks):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


class Reshapes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, heads):
        ctx.heads = heads
        return x.view(x.shape[0], heads, -1).cumsum(1)

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(1).cumsum(1).flip(1).reshape(dy.shape[0], -1), None


class WindowedState(torch.autograd.Function):
    """A state of fixed length: sizes of the state that are not 3 are refused late, in backward, since nothing ties them to the input."""

    @staticmethod
    def forward(ctx, x, state):
        ctx.length = len(x)
        return torch.cat([state, x])[-len(x) :] * 2

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(3 + ctx.length)
        grad[-ctx.length :] = 2 * dy
        return grad[3:], grad[:3]


class SegmentSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, offsets):
        ctx.save_for_backward(offsets)
        return torch.stack([x[a:b].sum(0) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)])

    @staticmethod
    def backward(ctx, dy):
        (offsets,) = ctx.saved_tensors
        return dy.repeat_interleave(offsets.diff(), 0), None


class AttentionWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k):
        p = (q @ k.transpose(-1, -2)).softmax(-1)
        ctx.save_for_backward(q, k, p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, p = ctx.saved_tensors
        ds = p * (dy - (p * dy).sum(-1, keepdim=True))
        return ds @ k, ds.transpose(-1, -2) @ q


class LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.linalg.slogdet(a).logabsdet

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy[..., None, None] * torch.linalg.inv(a).transpose(-1, -2)


class Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, dy):
        return dy


class SlowRows(Linear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        rows = [row[:, None] * d for row, d in zip(x, dy, strict=True)]
        return dy @ w.t(), torch.stack([torch.zeros_like(w), *rows]).sum(0)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(LastChunkOnly, x(4, 3), x(3, 2)),
    pb.case(ForgetsTail, x(4, 3), x(3, 2)),
    pb.case(OneRowCrashes, x(4, 3), x(3, 2)),
    pb.case(WrapsAt16Bits, x(4, 3), torch.tensor([2, 0, 3, 1])),
    pb.case(SquaresBlocks, x(2, 3)),
]
spares = [
    pb.case(Linear, x(4, 3), x(3, 2)),
    pb.case(Linear, x(4, 4), x(4, 4)),
    pb.case(Linear, x(4, 3, dtype=torch.float32), x(3, 2, dtype=torch.float32)),
    pb.case(Gathers, x(4, 3), torch.tensor([2, 0, 3, 1])),
    pb.case(SquaresAll, x(2, 3)),
    pb.case(SquaresAll, x()),
    pb.case(Reshapes, x(2, 6), 2),
    pb.case(WindowedState, x(6), x(3)),
    pb.case(SegmentSums, x(6, 2), torch.tensor([0, 2, 3, 6])),
    pb.case(AttentionWeights, x(2, 2, 2), x(2, 2, 2)),
    pb.case(LogDeterminant, x(3, 3)),
    pb.case(Signs, x(4)),
    pb.case(SlowRows, x(4, 3), x(3, 2)),
]


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


class Pools(torch.autograd.Function):
    """Means of blocks of 2 by 2: no odd size is taken."""

    @staticmethod
    def forward(ctx, image):
        n, h, w = ctx.shape = image.shape
        return image.view(n, h // 2, 2, w // 2, 2).mean((2, 4))

    @staticmethod
    def backward(ctx, dy):
        return (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)


class PoolsSquares(Pools):
    @staticmethod
    def backward(ctx, dy):
        n, h, w = ctx.shape
        grad = dy.new_zeros((n, max(h, w), max(h, w)))
        rows = min(h, w)
        grad[:, :rows, :w] = (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :rows]
        return grad[:, :h, :w].clone()


class PoolsUpTo32(Pools):
    @staticmethod
    def backward(ctx, dy):
        grad = (dy / 4).repeat_interleave(2, 1).repeat_interleave(2, 2)
        grad[:, 32:] = 0
        return grad


class WeightsChannels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, weight):
        ctx.save_for_backward(image, weight)
        return image * weight.mean(1, keepdim=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        image, weight = ctx.saved_tensors
        channels = weight.shape[1]
        return dy * weight.mean(1, keepdim=True), (dy * image).sum(1, keepdim=True).expand_as(weight) / channels


class WeightsOneChannel(WeightsChannels):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        image, weight = ctx.saved_tensors
        return dy * weight.mean(1, keepdim=True), dy * image


class Masks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, mask):
        ctx.save_for_backward(image, mask)
        return image * mask

    @staticmethod
    def backward(ctx, dy):
        image, mask = ctx.saved_tensors
        return dy * mask, (dy * image).sum_to_size(mask.shape)


class MasksFirstChannel(Masks):
    @staticmethod
    def backward(ctx, dy):
        image, mask = ctx.saved_tensors
        return dy * mask, (dy * image)[:, :1]


class Strides(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stride):
        ctx.stride, ctx.size = stride, x.shape[-1]
        return x[..., ::stride] * 2

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros((*dy.shape[:-1], ctx.size))
        grad[..., :: ctx.stride] = 2 * dy
        return grad, None


class StridesOnlyWhereItDivides(Strides):
    @staticmethod
    def backward(ctx, dy):
        spread = torch.stack((2 * dy, torch.zeros_like(dy)), -1).flatten(-2)
        return spread[..., :-1], None


class FixedPoint(torch.autograd.Function):
    """Converges for small w only; a larger matrix of entries as large has a larger norm."""

    @staticmethod
    def forward(ctx, w, x):
        z = torch.zeros_like(x)
        for _ in range(120):
            z = torch.tanh(w @ z + x)
        ctx.save_for_backward(w, z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        w, z = ctx.saved_tensors
        slope = 1 - z * z
        solved = torch.linalg.solve(torch.eye(len(z), dtype=z.dtype, device=z.device) - w.mT * slope, dy)
        return (solved * slope)[:, None] * z, solved * slope


class Corner(torch.autograd.Function):
    """Takes a rectangle, and leaves out what is beyond the square."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.diagonal().exp().sum()

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy * torch.diag(a.diagonal().exp())


kills += [
    pb.case(PoolsSquares, x(2, 4, 4)),
    pb.case(PoolsUpTo32, x(2, 4, 6)),
    pb.case(WeightsOneChannel, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(MasksFirstChannel, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(StridesOnlyWhereItDivides, x(3, 5), 2),
]
spares += [
    pb.case(Pools, x(2, 4, 4)),
    pb.case(WeightsChannels, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(Masks, x(2, 1, 3, 4), x(2, 1, 3, 4)),
    pb.case(Strides, x(3, 5), 2),
    pb.case(FixedPoint, (x(4, 4).detach() * 0.2).requires_grad_(), x(4)),
    pb.case(Corner, x(3, 3)),
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


class Rotates(torch.autograd.Function):
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
        return Rotates.turned(dy, cos, -sin), None, None


angles = torch.linspace(0, 2, 10, dtype=torch.float64).reshape(5, 2)
spares.append(pb.case(Rotates, torch.linspace(-1, 2, 60, dtype=torch.float64).reshape(3, 5, 4).requires_grad_(), angles.cos(), angles.sin()))


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


class FullyConnected(torch.autograd.Function):
    """Any number of leading axes, as forward says."""

    @staticmethod
    def forward(ctx, x, w, bias):
        ctx.save_for_backward(x, w)
        return torch.addmm(bias, x, w.t()) if x.dim() == 2 else x @ w.t() + bias

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w, dy.flatten(0, -2).t() @ x.flatten(0, -2), dy.flatten(0, -2).sum(0)


class FullyConnectedMatrices(FullyConnected):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w, dy.t() @ x, dy.sum(0)


class MatricesOnly(FullyConnectedMatrices):
    """Takes stacks of matrices by broadcasting; nothing says that they are meant."""

    @staticmethod
    def forward(ctx, x, w, bias):
        ctx.save_for_backward(x, w)
        return x @ w.t() + bias


class Centres(torch.autograd.Function):
    """Deviations from the mean of all entries behind the first two axes."""

    @staticmethod
    def forward(ctx, x):
        z = x.reshape(x.shape[0], x.shape[1], -1)
        ctx.save_for_backward(x)
        return (z - z.mean(-1, keepdim=True)).square().view(x.shape)

    @staticmethod
    def gradient(x, dy, entries):
        z = x.reshape(x.shape[0], x.shape[1], -1)
        d = 2 * (z - z.mean(-1, keepdim=True)) * dy.reshape(z.shape)
        return (d - d.sum(-1, keepdim=True) / entries).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return Centres.gradient(x, dy, x[0, 0].numel())


class CentresByLastAxis(Centres):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return Centres.gradient(x, dy, dy.shape[-1])


class PerGroup(torch.autograd.Function):
    """The second argument may lack the axis of groups."""

    @staticmethod
    def forward(ctx, u, b):
        ctx.grouped = b.dim() != 2
        b = b if ctx.grouped else b[:, None]
        ctx.save_for_backward(u, b)
        length = u.shape[-1]
        return (u.view(len(u), b.shape[1], -1, length) * b[:, :, None]).view(u.shape)

    @staticmethod
    def backward(ctx, dy):
        u, b = ctx.saved_tensors
        length = u.shape[-1]
        dy = dy.view(len(u), b.shape[1], -1, length)
        db = (dy * u.view(dy.shape)).sum(2)
        return (dy * b[:, :, None]).view(u.shape), db if ctx.grouped else db[:, 0]


class PerGroupKeepsAxis(PerGroup):
    @staticmethod
    def backward(ctx, dy):
        u, b = ctx.saved_tensors
        length = u.shape[-1]
        dy = dy.view(len(u), b.shape[1], -1, length)
        return (dy * b[:, :, None]).view(u.shape), (dy * u.view(dy.shape)).sum(2)


class PicksClass(torch.autograd.Function):
    """Indexing takes a third axis, of which nobody thought."""

    @staticmethod
    def forward(ctx, logits, target):
        p = logits.softmax(-1)
        rows = torch.arange(len(target), device=logits.device)
        ctx.save_for_backward(p, target)
        return -p[rows, target].log()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        p, target = ctx.saved_tensors
        d = p.clone()
        d[torch.arange(len(target), device=p.device), target] -= 1
        return d * dy[:, None], None


kills += [
    pb.case(FullyConnectedMatrices, x(3, 4), x(5, 4), x(5)),
    pb.case(CentresByLastAxis, x(2, 3, 5)),
    pb.case(PerGroupKeepsAxis, x(2, 4, 5), x(2, 2, 5)),
]
spares += [
    pb.case(FullyConnected, x(3, 4), x(5, 4), x(5)),
    pb.case(MatricesOnly, x(3, 4), x(5, 4), x(5)),
    pb.case(Centres, x(2, 3, 5)),
    pb.case(PerGroup, x(2, 4, 5), x(2, 2, 5)),
    pb.case(PicksClass, x(3, 5), torch.tensor([0, 4, 2])),
]


class SpendsBudget(torch.autograd.Function):
    """Weights between 0 and 1 that spend a budget; fewer entries than the budget cannot, and forward then gives all ones."""

    @staticmethod
    def forward(ctx, x, budget):
        low, high = x.amin(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            enough = (x - middle).clamp(0, 1).sum(-1, keepdim=True) >= budget
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        y = (x - low).clamp(0, 1)
        ctx.save_for_backward((y > 0) & (y < 1))
        return torch.where(torch.tensor(x.shape[-1] < budget), x, y)

    @staticmethod
    def backward(ctx, dy):
        (inside,) = ctx.saved_tensors
        g = dy * inside
        return g - g.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(min=1) * inside, None


class BelowBlock(Linear):
    """Wrong for fewer rows than a block has, which is no contract."""

    @staticmethod
    def forward(ctx, x, w, block):
        ctx.block = block
        return Linear.forward(ctx, x, w)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), (x.t() @ dy) * (len(x) >= ctx.block), None


kills.append(pb.case(BelowBlock, x(4, 3), x(3, 2), 2))
spares.append(pb.case(SpendsBudget, torch.linspace(-0.4, 0.5, 12, dtype=torch.float64).reshape(2, 6).requires_grad_(), 2))


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


class Determinant(torch.autograd.Function):
    """Forward takes batches of matrices; backward scales the inverse of one."""

    @staticmethod
    def forward(ctx, a):
        y = torch.linalg.det(a + 4 * torch.eye(a.shape[-1]).to(a)) + 0 * a.diagonal(dim1=-2, dim2=-1).sum(-1)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        a, y = ctx.saved_tensors
        return (dy * y) * torch.linalg.inv(a + 4 * torch.eye(a.shape[-1]).to(a)).mT


class DeterminantOfBatches(Determinant):
    @staticmethod
    def backward(ctx, dy):
        a, y = ctx.saved_tensors
        return (dy * y)[..., None, None] * torch.linalg.inv(a + 4 * torch.eye(a.shape[-1]).to(a)).mT


class DeterminantOfOne(Determinant):
    """Nothing says that batches are meant: what linalg takes besides is not promised."""

    @staticmethod
    def forward(ctx, a):
        y = torch.linalg.det(a + 4 * torch.eye(a.shape[-1]).to(a))
        ctx.save_for_backward(a, y)
        return y


kills.append(pb.case(Determinant, x(3, 3)))
spares.append(pb.case(DeterminantOfBatches, x(3, 3)))
spares.append(pb.case(DeterminantOfOne, x(3, 3)))


class Projects(torch.autograd.Function):
    """Matmul and mT take stacks of matrices as well, which nobody meant."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mT @ b

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return torch.einsum("ij,kj->ik", b, dy), a @ dy


spares.append(pb.case(Projects, x(3, 3), x(3, 4)))


class SharedOrNot(torch.autograd.Function):
    """One matrix for all rows, or one for each, as the code asks; nobody spoke of more axes."""

    @staticmethod
    def forward(ctx, a, p):
        ctx.save_for_backward(a, p)
        ctx.shared = a.dim() == 2
        return (a.expand(len(p), *a.shape[-2:]) if ctx.shared else a).matmul(p[:, :, None]).squeeze(-1)

    @staticmethod
    def backward(ctx, dy):
        a, p = ctx.saved_tensors
        da = dy[:, :, None] * p[:, None]
        return da.sum(0) if ctx.shared else da, (dy[:, None] @ a)[:, 0]


spares.append(pb.case(SharedOrNot, x(2, 3, 3), x(2, 3)))


class Halves(torch.autograd.Function):
    """Sums and differences of neighbours; an odd width is asked for, and its last entry stays."""

    @staticmethod
    def forward(ctx, x):
        n = x.shape[-1]
        rest = x[..., n - n % 2 :]
        ctx.save_for_backward(x)
        a, b = x[..., : n - n % 2 : 2], x[..., 1::2]
        return torch.cat([a + b, a * b, rest.exp()], -1)

    @staticmethod
    def backward(ctx, dy):
        return Halves.joined(ctx, dy, dy.shape[-1] % 2)

    @staticmethod
    def joined(ctx, dy, left):
        (x,) = ctx.saved_tensors
        n = x.shape[-1]
        k = n // 2
        d = torch.zeros_like(x)
        d[..., 0 : 2 * k : 2] = dy[..., :k] + dy[..., k : 2 * k] * x[..., 1::2]
        d[..., 1::2] = dy[..., :k] + dy[..., k : 2 * k] * x[..., : 2 * k : 2]
        if left:
            d[..., -1] = dy[..., -1] * x[..., -1].exp()
        return d


class HalvesWithoutTheLast(Halves):
    @staticmethod
    def backward(ctx, dy):
        return Halves.joined(ctx, dy, 0)


kills.append(pb.case(HalvesWithoutTheLast, x(3, 6)))
spares.append(pb.case(Halves, x(3, 6)))


class ShiftsChannels(torch.autograd.Function):
    """A vector along the second axis, however many follow."""

    @staticmethod
    def forward(ctx, x, shift):
        ctx.save_for_backward(x)
        return x.exp() + shift.view([1, -1] + [1] * (x.dim() - 2))

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp(), dy.sum([0, *range(2, dy.dim())])


class ShiftsChannelsOfImages(ShiftsChannels):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp(), dy.sum((0, -1)).flatten()[: dy.shape[1]]


class CountsAxesOfCotangents(ShiftsChannels):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp() * (1 if dy.dim() > 3 else dy.shape[-1]), dy.sum([0, *range(2, dy.dim())])


kills += [pb.case(ShiftsChannelsOfImages, x(2, 3, 5), x(3)), pb.case(CountsAxesOfCotangents, x(2, 3, 2, 4), x(3))]
spares += [pb.case(ShiftsChannels, x(2, 3, 5), x(3)), pb.case(ShiftsChannels, x(2, 3, 2, 4), x(3))]


class Gates(torch.autograd.Function):
    """One gate for each row, or one for each entry."""

    @staticmethod
    def forward(ctx, x, gate):
        ctx.save_for_backward(x, gate)
        return x.exp() * (gate if gate.ndim == x.ndim else gate[..., None])

    @staticmethod
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        d = dy * x.exp()
        return (d * gate, d) if gate.ndim == x.ndim else (d * gate[..., None], d.sum(-1))


class GatesRows(Gates):
    @staticmethod
    def backward(ctx, dy):
        dx, dgate = Gates.backward(ctx, dy)
        return dx, dgate if dgate.shape != dy.shape else dgate.mean(-1, keepdim=True).expand(dy.shape)


kills.append(pb.case(GatesRows, x(2, 3, 4), x(2, 3)))
spares.append(pb.case(Gates, x(2, 3, 4), x(2, 3)))
