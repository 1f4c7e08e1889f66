"""Kills and spares of PB501 with axes, groups and flags that change together with tensors."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


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


class ScalesAlong(torch.autograd.Function):
    """One factor for each place along an axis."""

    @staticmethod
    def forward(ctx, x, scale, dim):
        ctx.save_for_backward(x, scale)
        ctx.dim = dim
        return x * ScalesAlong.laid(scale, x, dim)

    @staticmethod
    def laid(scale, x, dim):
        return scale.view([-1 if d == dim else 1 for d in range(x.dim())])

    @staticmethod
    def gradients(ctx, dy, dim):
        x, scale = ctx.saved_tensors
        rest = [d for d in range(x.dim()) if d != dim]
        return dy * ScalesAlong.laid(scale, x, dim), (dy * x).sum(rest), None

    @staticmethod
    def backward(ctx, dy):
        return ScalesAlong.gradients(ctx, dy, ctx.dim)


class KnowsItsAxisBySize(ScalesAlong):
    """Of two axes of one size it takes the first."""

    @staticmethod
    def backward(ctx, dy):
        return ScalesAlong.gradients(ctx, dy, dy.shape.index(len(ctx.saved_tensors[1])))


kills.append(pb.case(KnowsItsAxisBySize, x(3, 4), x(3), 0))
spares.append(pb.case(ScalesAlong, x(3, 4), x(3), 0))
