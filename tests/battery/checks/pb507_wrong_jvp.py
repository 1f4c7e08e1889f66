"""Kills and spares of PB507."""

from types import SimpleNamespace

import torch

import pullback as pb


class Product(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a * b, a + b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, dy, dz):
        a, b = ctx.saved_tensors
        return dy * b + dz, dy * a + dz

    @staticmethod
    def jvp(ctx, da, db):
        a, b = ctx.saved_tensors
        da = torch.zeros_like(a) if da is None else da
        db = torch.zeros_like(b) if db is None else db
        return da * b + a * db, da + db


class HalfProduct(Product):
    @staticmethod
    def jvp(ctx, da, db):
        a, b = ctx.saved_tensors
        da = torch.zeros_like(a) if da is None else da
        db = torch.zeros_like(b) if db is None else db
        return da * b, da + db


class NeedsBoth(Product):
    @staticmethod
    def jvp(ctx, da, db):
        a, b = ctx.saved_tensors
        return da * b + a * db, da + db


class Unmaterialized(NeedsBoth):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, dy, dz):
        a, b = ctx.saved_tensors
        dy, dz = (torch.zeros_like(a) if d is None else d for d in (dy, dz))
        return dy * b + dz, dy * a + dz


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**3

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * x * x * dy

    @staticmethod
    def jvp(ctx, dx):
        (x,) = ctx.saved_tensors
        return 3 * x * x * dx


class CubeSlope(Cube):
    @staticmethod
    def jvp(ctx, dx):
        (x,) = ctx.saved_tensors
        return 2 * x * x * dx


class NoJvp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(HalfProduct, x(3), x(3)),
    pb.case(Unmaterialized, x(3), x(3)),
    pb.case(CubeSlope, x(3)),
    pb.case(CubeSlope, x(2, 2, dtype=torch.float32)),
]
spares = [
    pb.case(Product, x(3), x(3)),
    pb.case(Product, x(), x()),
    pb.case(NeedsBoth, x(3), x(3)),
    pb.case(Product, x(3, dtype=torch.float32), x(3, dtype=torch.float32)),
    pb.case(Cube, x(3)),
    pb.case(Cube, x(0)),
    pb.case(NoJvp, x(3)),
]


class CountsCalls(torch.autograd.Function):
    """Counts on an object, which the search makes up from what forward and backward ask of it."""

    @staticmethod
    def forward(x, counter):
        counter.forwards += 1
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.counter = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        return dy, None

    @staticmethod
    def jvp(ctx, tangent, _):
        ctx.counter.tangents += 1
        return tangent.clone()


spares.append(pb.Case(CountsCalls, (x(3), SimpleNamespace(forwards=0)), origin="searched", invented=("counter",)))
