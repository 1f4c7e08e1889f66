"""Kills and spares of PB625 with odd sizes, other ranks and shapes per channel."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


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
