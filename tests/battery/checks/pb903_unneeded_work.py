"""Kills and spares of PB903."""

import torch

import pullback as pb


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Asks(Both):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = dy @ w.t()
        if ctx.needs_input_grad[1]:
            dw = x.t() @ dy
        return dx, dw


class Free(torch.autograd.Function):
    """grad_output itself costs nothing."""

    @staticmethod
    def forward(x, w, n):
        return (x + w) * n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.n = inputs[2]

    @staticmethod
    def backward(ctx, dy):
        dx = dy * ctx.n
        return dx, dx.view_as(dx), None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(Both, x(3, 4), x(4, 2)), pb.case(lambda a, b: Both.apply(a, b).sum(), x(3, 4), x(4, 2))]
spares = [pb.case(Asks, x(3, 4), x(4, 2)), pb.case(Free, x(3), x(3), 2.0)]
