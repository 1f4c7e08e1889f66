"""Kills and spares of PB510."""

import torch

import pullback as pb


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w.conj(), dy * x.conj()


class PlainProduct(Product):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x.conj()


class Power(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return (x.conj() * x).real.sum(), x.real.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy, dz):
        (x,) = ctx.saved_tensors
        return 2 * dy * x + dz


class ConjugatedPower(Power):
    @staticmethod
    def backward(ctx, dy, dz):
        (x,) = ctx.saved_tensors
        return 2 * dy * x.conj() + dz


class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, flag=True):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return dy @ b.mH, a.mH @ dy, None


class TransposedOnly(MatMul):
    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return dy @ b.mT, a.mT @ dy, None


def z(*shape):
    return torch.randn(shape, dtype=torch.complex128, requires_grad=True)


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(PlainProduct, z(3), z(3)),
    pb.case(PlainProduct, z(), z()),
    pb.case(PlainProduct, z(3).to(torch.complex64).detach().requires_grad_(), z(3).to(torch.complex64).detach().requires_grad_()),
    pb.case(ConjugatedPower, z(4)),
    pb.case(TransposedOnly, z(2, 3), z(3, 2)),
]
spares = [
    pb.case(Product, z(3), z(3)),
    pb.case(Product, x(3), x(3)),
    pb.case(Product, z(3).to(torch.complex64).detach().requires_grad_(), z(3).to(torch.complex64).detach().requires_grad_()),
    pb.case(Power, z(4)),
    pb.case(MatMul, z(2, 3), z(3, 2)),
    pb.case(MatMul, z(2, 3), z(3, 2), False),
]
