"""Kills and spares of PB604."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def as_packed(grad, like):
    return torch.as_strided(grad.detach(), like.shape, like.stride(), grad.storage_offset())


class ReadsPointer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return as_packed(dy, x) * x.exp()


class Views(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, dy):
        return (3 * dy.view(-1)).view(dy.shape)


class PacksFirst(ReadsPointer):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return as_packed(dy.contiguous(), x.contiguous()) * x.exp()


class Reshapes(Views):
    @staticmethod
    def backward(ctx, dy):
        return (3 * dy.reshape(-1)).reshape(dy.shape)


class ChannelsLastOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        if not dy.is_contiguous(memory_format=torch.channels_last):
            raise RuntimeError("NHWC expected")
        return dy * 2


class PackedVolumesOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return as_packed(dy, torch.empty(dy.shape)) * 2


class TwoOutputsSecondByPointer(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_sin * x.cos() - as_packed(d_cos, x) * x.sin()


class TwoOutputsRight(TwoOutputsSecondByPointer):
    @staticmethod
    def backward(ctx, d_sin, d_cos):
        (x,) = ctx.saved_tensors
        return d_sin * x.cos() - as_packed(d_cos.contiguous(), x.contiguous()) * x.sin()


class MemoryWithoutConjugation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z * 2

    @staticmethod
    def backward(ctx, dz):
        return torch.view_as_complex(torch.view_as_real(dz.conj() if dz.is_conj() else dz).clone()) * 2


class ResolvesConjugation(MemoryWithoutConjugation):
    @staticmethod
    def backward(ctx, dz):
        return torch.view_as_complex(torch.view_as_real(dz.resolve_conj()).clone()) * 2


class NumpyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(dy.numpy() / np.cosh(x.numpy()) ** 2)


class SumsToNothing(torch.autograd.Function):
    """The gradient for an expanded cotangent is zero up to rounding, in either layout."""

    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return y * (dy - (y * dy).sum(-1, keepdim=True))


class Scalar(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum(), (x * 2).flatten()[0], torch.arange(3)

    @staticmethod
    def backward(ctx, d_sum, d_first, _):
        grad = d_sum.expand(ctx.shape).clone()
        grad.view(-1)[0] += 2 * d_first
        return grad


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def channels_last(*shape):
    return torch.randn(shape, dtype=torch.float64).contiguous(memory_format=torch.channels_last).requires_grad_()


kills = [
    pb.case(ReadsPointer, x(3, 4)),
    pb.case(ReadsPointer, x(5)),
    pb.case(ReadsPointer, x(3, 4, dtype=torch.float32)),
    pb.case(Views, x(3, 4)),
    pb.case(ChannelsLastOnly, channels_last(2, 3, 2, 2)),
    pb.case(PackedVolumesOnly, x(2, 3, 2, 2, 2)),
    pb.case(TwoOutputsSecondByPointer, x(3, 4)),
    pb.case(MemoryWithoutConjugation, x(3, dtype=torch.complex128)),
]
spares = [
    pb.case(PacksFirst, x(3, 4)),
    pb.case(Reshapes, x(3, 4)),
    pb.case(Reshapes, x(2, 3, 2, 2)),
    pb.case(Reshapes, x()),
    pb.case(Reshapes, x(2, 1, 3, 2, 2)),
    pb.case(TwoOutputsRight, x(3, 4)),
    pb.case(ResolvesConjugation, x(3, dtype=torch.complex128)),
    pb.case(NumpyBackward, x(3, 4)),
    pb.case(SumsToNothing, x(5, 7)),
    pb.case(SumsToNothing, x(5, 7, dtype=torch.float32)),
    pb.case(Scalar, x(2, 3)),
]


class SumsInSingle(torch.autograd.Function):
    """float64 in, float32 inside: another order of additions is another last digit of float32."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x.float() * w.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, w = (t.float() for t in ctx.saved_tensors)
        dy = dy.float()
        return (dy * w).to(ctx.saved_tensors[0].dtype), (dy * x).sum((0, 1)).to(ctx.saved_tensors[1].dtype)


spares += [pb.case(SumsInSingle, x(2, 5, 6), x(6)), pb.case(SumsInSingle, x(7, 33, 6), x(6))]


class NoisyGradient(torch.autograd.Function):
    """The noise is drawn in the layout of grad_output: for another layout it is another one."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return dy + torch.zeros_like(dy).normal_()


spares.append(pb.case(NoisyGradient, x(2, 3, 4)).declare(exact=False, linear=False, reason="noise against overfitting"))


class FromTheStart(torch.autograd.Function):
    """Packed rows, read from where their memory starts."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = FromTheStart.read(dy.contiguous())
        return dy * w, (dy * x).sum(0)

    @staticmethod
    def read(dy):
        return torch.as_strided(dy, dy.shape, dy.stride(), 0)


class FromItsPointer(FromTheStart):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.contiguous()
        dy = torch.as_strided(dy, dy.shape, dy.stride(), dy.storage_offset())
        return dy * w, (dy * x).sum(0)


class RotatesParts(torch.autograd.Function):
    """Real and imaginary parts, as view_as_real hands them out: not while a conjugation is pending."""

    @staticmethod
    def forward(ctx, x, angle):
        ctx.save_for_backward(angle)
        return x * torch.polar(torch.ones_like(angle), angle)

    @staticmethod
    def backward(ctx, dy):
        (angle,) = ctx.saved_tensors
        a, b = torch.view_as_real(RotatesParts.ready(dy)).unbind(-1)
        c, s = angle.cos(), angle.sin()
        return torch.complex(a * c + b * s, b * c - a * s), None

    @staticmethod
    def ready(dy):
        return dy


class RotatesResolved(RotatesParts):
    @staticmethod
    def backward(ctx, dy):
        return RotatesParts.backward(ctx, dy.resolve_conj())


kills.append(pb.case(FromTheStart, x(3, 4), x(4)))
kills.append(pb.case(RotatesParts, x(3, 4, dtype=torch.complex128), torch.linspace(0.1, 0.9, 4, dtype=torch.float64)))
spares.append(pb.case(FromItsPointer, x(3, 4), x(4)))
spares.append(pb.case(RotatesResolved, x(3, 4, dtype=torch.complex128), torch.linspace(0.1, 0.9, 4, dtype=torch.float64)))
