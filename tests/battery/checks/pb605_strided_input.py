"""Kills and spares of PB605."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def in_memory_order(t):
    """The elements as a kernel reads them that gets a pointer and a count."""
    return torch.as_strided(t.detach(), t.shape, torch.empty(t.shape, device="meta").stride(), t.storage_offset())


class ReadsInputPointer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = in_memory_order(x).exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class ReadsSavedPointer(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * in_memory_order(x)).sum(0)


class ViewsSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return (2 * dy * x.view(-1)).view(x.shape)


class IndexPointer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = len(x)
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, *dy.shape[1:]).index_add_(0, in_memory_order(index).abs(), dy), None


class PacksFirst(ReadsInputPointer):
    @staticmethod
    def forward(ctx, x):
        y = in_memory_order(x.contiguous()).exp()
        ctx.save_for_backward(y)
        return y


class RefusesInForward(ReadsInputPointer):
    @staticmethod
    def forward(ctx, x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        y = in_memory_order(x).exp()
        ctx.save_for_backward(y)
        return y


class Scale(ReadsSavedPointer):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


class NumpyMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.from_numpy(np.matmul(x.detach().numpy(), w.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Drops(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.empty_like(x).bernoulli_(1 - p) / (1 - p)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


class AddsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class KeepsLayout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x).copy_(x.tanh())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(ReadsInputPointer, x(3, 4)),
    pb.case(ReadsInputPointer, x(3, 4, dtype=torch.float32)),
    pb.case(ReadsSavedPointer, x(3, 4), x(4)),
    pb.case(ViewsSaved, x(3, 4)),
    pb.case(IndexPointer, x(4, 3), torch.tensor([0, 3, 1])),
]
spares = [
    pb.case(PacksFirst, x(3, 4)),
    pb.case(RefusesInForward, x(3, 4)),
    pb.case(Scale, x(3, 4), x(4)),
    pb.case(NumpyMatmul, x(3, 4), x(4, 2)),
    pb.case(Drops, x(3, 4), 0.5),
    pb.case(AddsInPlace, x(3, 4), x(3, 4)),
    pb.case(KeepsLayout, x(2, 3, 2, 2)),
    pb.case(KeepsLayout, x()),
]


class Diverges(torch.autograd.Function):
    """An iteration that does not settle tells any other order of additions."""

    @staticmethod
    def forward(ctx, x, w):
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(z @ w.t() + x)
        ctx.save_for_backward(z)
        return z

    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return dy * (1 - z * z), None


class DrawsFromGenerator(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, generator):
        noise = torch.empty_like(x).uniform_(0.5, 1.5, generator=generator)
        ctx.save_for_backward(noise)
        return x * noise

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


spares.append(pb.case(DrawsFromGenerator, x(3, 4), torch.Generator().manual_seed(3)))
spares.append(pb.case(Diverges, x(3, 6), 40 * x(6, 6).detach()).declare(exact=False, reason="one step of the iteration"))


class NoisyBelow(torch.autograd.Function):
    """The gradient below the threshold is noise, which another layout draws in another order."""

    @staticmethod
    def forward(ctx, x):
        above = x > 0
        ctx.save_for_backward(above)
        return above.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (above,) = ctx.saved_tensors
        return torch.where(above, dy, dy * torch.rand_like(above, dtype=dy.dtype))


spares.append(pb.case(NoisyBelow, x(3, 4)))
