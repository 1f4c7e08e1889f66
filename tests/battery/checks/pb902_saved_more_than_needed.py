"""Kills and spares of PB902."""

import torch

import pullback as pb


class ForShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x[:, 1:].clone()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.zeros_like(x)
        dx[:, 1:] = dy
        return dx


class ForDtype(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x + w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy.to(x.dtype), dy.sum_to_size(w.shape)


class IsThere(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias=None):
        ctx.save_for_backward(bias)
        return x * 2 if bias is None else x * 2 + bias

    @staticmethod
    def backward(ctx, dy):
        (bias,) = ctx.saved_tensors
        return dy * 2, (None if bias is None else dy.sum(0))


class KeepsShape(ForShape):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x[:, 1:].clone()

    @staticmethod
    def backward(ctx, dy):
        dx = dy.new_zeros(ctx.shape)
        dx[:, 1:] = dy
        return dx


class KeepsSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.sign()


class AsksWhichLabel(torch.autograd.Function):
    """The labels are numbers of which only one counts; a random tensor holds none of it."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(target)
        return torch.where(target == 1, x, 2 * x)

    @staticmethod
    def backward(ctx, dy):
        (target,) = ctx.saved_tensors
        return torch.where(target == 1, dy, 2 * dy), None


class Gathers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, *dy.shape[1:]).index_add(0, index, dy), None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(ForShape, x(3, 4)), pb.case(ForDtype, x(3, 4), x(4)), pb.case(IsThere, x(3, 4), x(4))]
spares = [
    pb.case(AsksWhichLabel, x(3, 4), torch.randn(3, 4, dtype=torch.float64)),
    pb.case(KeepsShape, x(3, 4)),
    pb.case(KeepsSign, x(3, 4)),
    pb.case(Gathers, x(4, 2), torch.tensor([0, 3, 3])),
    pb.case(IsThere, x(3, 4)),
]
