"""Kills and spares of PB620."""

import torch

import pullback as pb


class FloatMask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class FloatWeights(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x * torch.linspace(0, 1, x.shape[-1]), n

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy, _):
        return (dy * torch.linspace(0, 1, dy.shape[-1])).to(dy.dtype), None


class NarrowGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x[..., :2].clone()

    @staticmethod
    def backward(ctx, dy):
        dx = torch.zeros(ctx.shape)
        dx[..., :2] = dy
        return dx


class KeepsDtype(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class LossInFloat32(torch.autograd.Function):
    """Accumulates in float32 on purpose, whatever it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float().square().sum()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return (2 * dy * x.float()).to(x.dtype)


class WithStatistics(torch.autograd.Function):
    """Returns statistics in at least float32 next to a result in the input's dtype."""

    @staticmethod
    def forward(ctx, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        norm = wide.logsumexp(-1)
        y = (wide - norm[..., None]).exp()
        ctx.save_for_backward(y)
        ctx.mark_non_differentiable(norm)
        return y.to(x.dtype), norm

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, _):
        (y,) = ctx.saved_tensors
        dx = y * (dy - (y * dy).sum(-1, keepdim=True))
        return dx.to(dy.dtype)


class Scale:
    def __init__(self):
        self.factor = torch.full((4,), 2.0, dtype=torch.float64)


class TakesObject(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale.factor

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.scale.factor, None


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [pb.case(FloatMask, x(3, 4)), pb.case(FloatWeights, x(3, 4), 2), pb.case(NarrowGradient, x(3, 4, dtype=torch.float32))]
spares = [
    pb.case(KeepsDtype, x(3, 4)),
    pb.case(KeepsDtype, x(3, 4, dtype=torch.bfloat16)),
    pb.case(LossInFloat32, x(3, 4, dtype=torch.float32)),
    pb.case(WithStatistics, x(3, 4)),
    pb.case(TakesObject, x(3, 4), Scale()),
]


class Phase(torch.autograd.Function):
    """Complex for real inputs: for bfloat16 torch has complex64 only."""

    @staticmethod
    def forward(ctx, x):
        y = torch.exp(1j * x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return (dy * (1j * y).conj()).real


spares.append(pb.case(Phase, x(3, 4)))


class SumsByProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x * 2 + bias

    @staticmethod
    def backward(ctx, dy):
        return dy * 2, (torch.ones(1, len(dy), dtype=dy.dtype, device=dy.device) @ dy)[0]


class SumsByProductOfDefault(SumsByProduct):
    @staticmethod
    def backward(ctx, dy):
        return dy * 2, (torch.ones(1, len(dy), device=dy.device) @ dy)[0]


class RefusesLate(SumsByProduct):
    @staticmethod
    def backward(ctx, dy):
        assert dy.dtype in (torch.bfloat16, torch.float16), "half precision only"
        return dy * 2, dy.sum(0)


class RefusesAtOnce(RefusesLate):
    @staticmethod
    def forward(ctx, x, bias):
        assert x.dtype in (torch.bfloat16, torch.float16), "half precision only"
        return x * 2 + bias


kills.append(pb.case(SumsByProductOfDefault, x(3, 4, dtype=torch.float32), x(4, dtype=torch.float32)))
kills.append(pb.case(RefusesLate, x(3, 4, dtype=torch.bfloat16), x(4, dtype=torch.bfloat16)))
spares.append(pb.case(SumsByProduct, x(3, 4, dtype=torch.float32), x(4, dtype=torch.float32)))
spares.append(pb.case(RefusesAtOnce, x(3, 4, dtype=torch.bfloat16), x(4, dtype=torch.bfloat16)))
