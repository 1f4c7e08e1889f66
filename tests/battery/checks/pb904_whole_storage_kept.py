"""Kills and spares of PB904."""

import torch

import pullback as pb


class SavesRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        buffer = torch.stack([x.exp(), x, x + 1])
        ctx.save_for_backward(buffer[0])
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class SavesColumn(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x[:, :1] ** 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.width = inputs[0].shape[1]
        ctx.save_for_backward(inputs[0][:, :1])

    @staticmethod
    def backward(ctx, dy):
        (column,) = ctx.saved_tensors
        return torch.nn.functional.pad(2 * column * dy, (0, ctx.width - 1))


class SavesClone(SavesRow):
    @staticmethod
    def forward(ctx, x):
        buffer = torch.stack([x.exp(), x, x + 1])
        ctx.save_for_backward(buffer[0].clone())
        return x.exp()


class SavesParts(SavesRow):
    """Both halves of the block are needed."""

    @staticmethod
    def forward(ctx, x):
        halves = torch.stack([x.exp(), x.cos()])
        ctx.save_for_backward(*halves)
        return x.exp() + x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        exp, cos = ctx.saved_tensors
        return dy * (exp + cos)


class SavesTransposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.t())
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0].t().cos()


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(SavesRow, x(3, 4)), pb.case(SavesColumn, x(3, 4))]
spares = [pb.case(SavesClone, x(3, 4)), pb.case(SavesParts, x(3, 4)), pb.case(SavesTransposed, x(3, 4))]


class SavesSparse(torch.autograd.Function):
    """A sparse tensor keeps its indices beside its values, and no block that is larger than both."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clamp(min=0).to_sparse())
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        return dy * (kept.to_dense() > 0)


spares.append(pb.case(SavesSparse, x(3, 4)))
