"""Kills and spares of PB604."""

import torch

import pullback as pb


def as_packed(grad, like):
    return torch.as_strided(grad.detach(), like.shape, like.stride(), grad.storage_offset())


class ReadsPointer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return as_packed(dy, x) * x.exp()


class Views(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, dy):
        return (3 * dy.view(-1)).view(dy.shape)


class PacksFirst(ReadsPointer):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return as_packed(dy.contiguous(), x.contiguous()) * x.exp()


class Reshapes(Views):
    @staticmethod
    def backward(ctx, dy):
        return (3 * dy.reshape(-1)).reshape(dy.shape)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(ReadsPointer, x(3, 4)), pb.case(ReadsPointer, x(5)), pb.case(Views, x(3, 4))]
spares = [pb.case(PacksFirst, x(3, 4)), pb.case(Reshapes, x(3, 4)), pb.case(Reshapes, x(2, 3, 2, 2)), pb.case(Reshapes, x())]
