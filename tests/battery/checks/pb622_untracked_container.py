"""Kills and spares of PB622."""

import dataclasses

import torch

import pullback as pb


@dataclasses.dataclass
class Layer:
    weight: torch.Tensor
    scale: float


class StacksList(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensors):
        return torch.stack(tensors)

    @staticmethod
    def backward(ctx, dy):
        return list(dy)


class AppliesLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return x * layer.weight * layer.scale

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.layer.weight * ctx.layer.scale, None


class AppliesDict(torch.autograd.Function):
    @staticmethod
    def forward(x, params):
        return x * params["w"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1]["w"])

    @staticmethod
    def backward(ctx, dy):
        (w,) = ctx.saved_tensors
        return dy * w, None


class StacksArguments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        return torch.stack(tensors)

    @staticmethod
    def backward(ctx, dy):
        return tuple(dy)


class ScalesBy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factors):
        ctx.factor = float(factors[0]) * factors[1]
        return x * ctx.factor

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def stack(tensors):
    return StacksArguments.apply(*tensors)


kills = [
    pb.case(StacksList, [x(3), x(3)]),
    pb.case(AppliesLayer, x(3), Layer(x(3), 2.0)),
    pb.case(AppliesDict, x(3), {"w": x(3)}),
]
spares = [
    pb.case(StacksArguments, x(3), x(3)),
    pb.case(stack, [x(3), x(3)]),
    pb.case(ScalesBy, x(3), [torch.tensor(2.0), 3.0]),
]
