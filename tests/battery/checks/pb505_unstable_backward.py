"""Kills and spares of PB505."""

import torch
import torch.nn.functional as F

import pullback as pb


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.softplus(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.sigmoid(x)


class NaiveSoftplus(Softplus):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp() / (1 + x.exp())


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return (scale * x).logsumexp(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.unsqueeze(-1) * ctx.scale * (ctx.scale * x).softmax(-1), None


class NaiveLogSumExp(LogSumExp):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        e = (ctx.scale * x).exp()
        return dy.unsqueeze(-1) * ctx.scale * e / e.sum(-1, keepdim=True), None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a - b

    @staticmethod
    def backward(ctx, dy, dz):
        a, b = ctx.saved_tensors
        return dy * b + dz, dy * a - dz


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(NaiveSoftplus, x(6)),
    pb.case(NaiveSoftplus, x(6, dtype=torch.float32)),
    pb.case(NaiveLogSumExp, x(2, 4), 1.5),
]
spares = [
    pb.case(Softplus, x(6)),
    pb.case(LogSumExp, x(2, 4), 1.5),
    pb.case(LogSumExp, x(2, 4, dtype=torch.float32), 1.5),
    pb.case(Product, x(3), x(3)),
    pb.case(Product, x(), x()),
    pb.case(Product, x(0), x(0)),
    pb.case(Exp, x(4)),
]
