"""Kills and spares of PB512."""

import torch

import pullback as pb


class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, dy):
        return dy


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x)
        ctx.threshold = threshold
        return (x > threshold).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy / (1 + (x - ctx.threshold).square()), None


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x).clone()

    @staticmethod
    def backward(ctx, dy):
        return -ctx.strength * dy, None


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return (x / scale).round() * scale

    @staticmethod
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        return dy, (dy * ((x / scale).round() - x / scale)).sum()


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, dy):
        return torch.zeros_like(dy)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def scale():
    return torch.tensor(0.3, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(RoundThrough, x(3, 4)),
    pb.case(Spike, x(6), 0.5),
    pb.case(Reversal, x(4), 0.1),
    pb.case(FakeQuant, x(6), scale()),
]
spares = [
    pb.case(RoundThrough, x(3, 4)),
    pb.case(Spike, x(6), 0.5),
    pb.case(FakeQuant, x(6), scale()),
    pb.case(Identity, x(4)),
    pb.case(Sign, x(4)),
    pb.case(RoundThrough, x(4)).declare(exact=False, reason="straight-through estimator"),
]


class Rewires(torch.autograd.Function):
    """Only connections that are there learn; the weights of the others are zero anyway, so forward needs no mask."""

    @staticmethod
    def forward(ctx, rows, weight, present):
        ctx.save_for_backward(rows, weight, present)
        return rows @ weight.T

    @staticmethod
    def backward(ctx, dy):
        rows, weight, present = ctx.saved_tensors
        return dy @ weight, (dy.T @ rows) * present, None


def present():
    return (torch.arange(20).reshape(5, 4) % 3 > 0).double()


kills.append(pb.case(Rewires, x(3, 4), x(5, 4), present()))
spares.append(pb.case(Rewires, x(3, 4), x(5, 4), present()))
