"""Kills and spares of PB701."""

import torch

import pullback as pb


class ForgetsToMove(torch.autograd.Function):
    """A running sum over the first dimension; vmap takes the batch to be there."""

    @staticmethod
    def forward(x):
        return x.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(0).cumsum(0).flip(0)

    @staticmethod
    def vmap(info, in_dims, x):
        return Running.apply(x), in_dims[0]


class Running(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.cumsum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(0).cumsum(0).flip(0)


class IgnoresInDims(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x

    @staticmethod
    def vmap(info, in_dims, x, w):
        x = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
        return IgnoresInDims.apply(x, w), 0


class Generated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x.cumsum(0) * w, (x * w).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, ds):
        x, w = ctx.saved_tensors
        return (dy * w).flip(0).cumsum(0).flip(0) + ds * w, dy * x.cumsum(0) + ds * x


class Moves(ForgetsToMove):
    @staticmethod
    def vmap(info, in_dims, x):
        return RunningColumns.apply(x.movedim(in_dims[0], -1)), -1


class RunningColumns(Running):
    pass


class Unbatched(Running):
    """Has setup_context, and no batching rule."""


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(ForgetsToMove, x(4)), pb.case(IgnoresInDims, x(3), x(3))]
spares = [pb.case(Generated, x(4), x(4)), pb.case(Moves, x(4)), pb.case(Moves, x(4, 2)), pb.case(Unbatched, x(4))]
