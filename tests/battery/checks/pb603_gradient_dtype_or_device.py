"""Kills and spares of PB603."""

import torch

import pullback as pb


class SumRowsDefaultDtype(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum(0)

    @staticmethod
    def backward(ctx, dy):
        grad_x = torch.zeros(ctx.shape)
        grad_x[:] = dy
        return grad_x


class SumRows(SumRowsDefaultDtype):
    @staticmethod
    def backward(ctx, dy):
        grad_x = dy.new_zeros(ctx.shape)
        grad_x[:] = dy
        return grad_x


class HalvesThrough16Bits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return (dy * w).to(torch.bfloat16), dy * x


class CountsHits(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0).to(torch.complex128)


class OtherDevice(SumRows):
    @staticmethod
    def backward(ctx, dy):
        return torch.zeros(ctx.shape, dtype=dy.dtype, device="meta")


class AccumulatesWide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy.double() * x.double()).sum(0)


class SinglePrecisionKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.float())
        return x.float().exp().to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.float() * x.exp()


class MixedPrecision(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x * w).to(torch.bfloat16)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w.to(dy.dtype), dy * x.to(dy.dtype)


class Magnitude(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.real.square() + z.imag.square()

    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return 2 * dy * z


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(SumRowsDefaultDtype, x(3, 4)),
    pb.case(HalvesThrough16Bits, x(3), x(3)),
    pb.case(HalvesThrough16Bits, x(3, dtype=torch.float32), x(3, dtype=torch.float32)),
    pb.case(CountsHits, x(2, 3), x(3)),
    pb.case(OtherDevice, x(3, 4)),
]
spares = [
    pb.case(SumRows, x(3, 4)),
    pb.case(AccumulatesWide, x(4, 3, dtype=torch.float32), x(3, dtype=torch.float32)),
    pb.case(SinglePrecisionKernel, x(4)),
    pb.case(Magnitude, x(4, dtype=torch.complex128)),
]
