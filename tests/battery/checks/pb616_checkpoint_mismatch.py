"""Kills and spares of PB616."""

import numpy
import torch

import pullback as pb


class ReadsAttribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w * w.factor, dy * x


class Identity(torch.autograd.Function):
    """Asks which object a saved tensor is."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.key = id(x)
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (3 if id(x) == ctx.key else 1)


class ReadsTwice(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[1], dy * ctx.saved_tensors[0]


class KeepsAttribute(ReadsAttribute):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.factor = w.factor
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w * ctx.factor, dy * x


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.tanh_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        return x * mask, None

    @staticmethod
    def backward(ctx, dy, _):
        (mask,) = ctx.saved_tensors
        return dy * mask, None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def with_factor():
    w = x(3)
    w.factor = 1.0
    return w


kills = [pb.case(ReadsAttribute, x(3), with_factor()), pb.case(Identity, x(3)), pb.case(ReadsTwice, x(3), x(3))]
spares = [
    pb.case(KeepsAttribute, x(3), with_factor()),
    pb.case(InPlace, x(3)),
    pb.case(Dropped, x(20), 0.5),
    pb.case(lambda a, b: torch.sin(a) @ b, x(3), x(3)),
]


class NumpyMask(torch.autograd.Function):
    """Checkpointing does not restore numpy's random state; that is not the op's fault."""

    @staticmethod
    def forward(ctx, x):
        mask = torch.from_numpy(numpy.random.rand(*x.shape) > 0.5).to(x.device)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


spares.append(pb.case(NumpyMask, x(20)))


class OwnGenerator(torch.autograd.Function):
    """Checkpointing cannot put a generator of one's own back."""

    @staticmethod
    def forward(ctx, x, generator):
        mask = (torch.rand(x.shape, generator=generator) < 0.5).to(x)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


spares.append(pb.case(OwnGenerator, x(20), torch.Generator().manual_seed(3)))


class Accumulates(torch.autograd.Function):
    """Adds to a weight's main gradient where it has one, and returns no gradient then."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.mT

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        main = getattr(w, "main_grad", None)
        if main is None:
            return dy @ w, dy.mT @ x
        main.add_(dy.mT @ x)
        return dy @ w, None


class Splits(torch.autograd.Function):
    """Two outputs of which one may stay unused."""

    @staticmethod
    def forward(ctx, x, size):
        ctx.shape, ctx.size = x.shape, size
        return x.narrow(-1, 0, size).clone(), x.narrow(-1, size, x.shape[-1] - size).clone()

    @staticmethod
    def backward(ctx, head, tail):
        return torch.cat([head, tail], -1), None


def with_main(*shape):
    w = torch.nn.Parameter(torch.randn(shape, dtype=torch.float64))
    w.main_grad = torch.zeros(shape, dtype=torch.float64)
    return w


kills.append(pb.case(Accumulates, x(6, 5), with_main(7, 5)))
spares.append(pb.case(Splits, x(3, 5), 2))
