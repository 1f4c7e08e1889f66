"""Kills and spares of PB501 with options, transposing flags, and work in another precision."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class HartleyOf(torch.autograd.Function):
    """Real plus imaginary part of a spectrum of `n` terms; backward takes a spectrum of the gradient that is as long as the signal."""

    @staticmethod
    def forward(ctx, signal, n=None):
        ctx.count = signal.shape[-1]
        spectrum = torch.fft.fft(signal, n=n)
        return spectrum.real + spectrum.imag

    @staticmethod
    def backward(ctx, dy):
        spectrum = torch.fft.fft(dy, n=ctx.count)
        return spectrum.real + spectrum.imag, None


class HartleyOfAny(HartleyOf):
    @staticmethod
    def backward(ctx, dy):
        spectrum = torch.fft.fft(dy)
        dx = (spectrum.real + spectrum.imag)[..., : ctx.count]
        return torch.nn.functional.pad(dx, (0, ctx.count - dx.shape[-1])), None


kills.append(pb.case(HartleyOf, x(3, 5), None))
spares.append(pb.case(HartleyOfAny, x(3, 5), None))


class ActsInSingle(torch.autograd.Function):
    """Counts in float32; the slope is that of another curve, which lies close by: a formula, no rounding."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.atan(x.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        z = x.float()
        return (dy.float() / (1 + z * z) * (1 + 1e-3 * torch.sin(z))).to(x.dtype)


kills.append(pb.case(ActsInSingle, torch.randn(4, 8, dtype=torch.float32).requires_grad_()))


class TransposesBoth(torch.autograd.Function):
    """A product with either factor transposed, if asked; with both of them, a gradient is transposed once too little."""

    @staticmethod
    def forward(ctx, left, right, left_t=False, right_t=False):
        ctx.save_for_backward(left, right)
        ctx.turned = left_t, right_t
        return (left.t() if left_t else left) @ (right.t() if right_t else right)

    @staticmethod
    def both(g):
        return g

    @classmethod
    def backward(cls, ctx, dy):
        left, right = ctx.saved_tensors
        left_t, right_t = ctx.turned
        d_left = dy @ (right if right_t else right.t())
        d_right = (left if left_t else left.t()) @ dy
        d_right = d_right.t() if right_t else d_right
        return d_left.t() if left_t else d_left, cls.both(d_right) if left_t and right_t else d_right, None, None


class TransposesBothWrong(TransposesBoth):
    @staticmethod
    def both(g):
        return g.t()


kills.append(pb.case(TransposesBothWrong, x(4, 5), x(5, 3), False, False))
spares.append(pb.case(TransposesBoth, x(4, 5), x(5, 3), False, False))


class TintsByOptions(torch.autograd.Function):
    """A flag that lies among other options in a dict."""

    @staticmethod
    def forward(ctx, x, options):
        ctx.options = options
        return x * options["gain"] + (x.sum(-1, keepdim=True) if options["glow"] else 0)

    @staticmethod
    def glow(dy):
        return 0

    @classmethod
    def backward(cls, ctx, dy):
        return dy * ctx.options["gain"] + (cls.glow(dy) if ctx.options["glow"] else 0), None


class TintsByOptionsRight(TintsByOptions):
    @staticmethod
    def glow(dy):
        return dy.sum(-1, keepdim=True)


kills.append(pb.case(TintsByOptions, x(3, 4), {"gain": 0.5, "glow": False}))
spares.append(pb.case(TintsByOptionsRight, x(3, 4), {"gain": 0.5, "glow": False}))
