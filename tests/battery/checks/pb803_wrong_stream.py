"""Kills and spares of PB803."""

import torch

import pullback as pb

settings = {"device": "cuda"}


class OwnStream(torch.autograd.Function):
    """Computes on a stream that waits for nobody."""

    @staticmethod
    def forward(ctx, x):
        with torch.cuda.stream(torch.cuda.Stream()):
            return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class OwnStreamInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        with torch.cuda.stream(torch.cuda.Stream()):
            return dy * 2


class Waits(torch.autograd.Function):
    """Computes on a stream of its own, which waits and is waited for."""

    @staticmethod
    def forward(ctx, x):
        return Waits.doubled(x)

    @staticmethod
    def backward(ctx, dy):
        return Waits.doubled(dy)

    @staticmethod
    def doubled(x):
        current, own = torch.cuda.current_stream(), torch.cuda.Stream()
        own.wait_stream(current)
        with torch.cuda.stream(own):
            y = x * 2
        x.record_stream(own)
        y.record_stream(current)
        current.wait_stream(own)
        return y


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(OwnStream, x(4096)), pb.case(OwnStreamInBackward, x(4096))]
spares = [pb.case(Waits, x(4096)), pb.case(Double, x(4096)), pb.case(Double, x(3))]
