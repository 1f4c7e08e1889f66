"""Kills and spares of PB502 with other numbers among the arguments, and beside the numbers that the code knows."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = []
spares = []


class Opacity(torch.autograd.Function):
    """What light is left after each of several layers."""

    @staticmethod
    def forward(ctx, alpha):
        left = torch.cumprod(1 - alpha, -1)
        ctx.save_for_backward(alpha, left)
        return left

    @staticmethod
    def backward(ctx, dy):
        alpha, _ = ctx.saved_tensors
        grad = torch.zeros_like(alpha)
        for i in range(alpha.shape[-1]):
            others = alpha.clone()
            others[..., i] = 0
            grad[..., i] = -(dy * torch.cumprod(1 - others, -1))[..., i:].sum(-1)
        return grad


class DividesByTransparency(Opacity):
    @staticmethod
    def backward(ctx, dy):
        alpha, left = ctx.saved_tensors
        after = (dy * left).flip(-1).cumsum(-1).flip(-1)
        return -after / (1 - alpha)


kills += [pb.case(DividesByTransparency, torch.rand(3, 4, dtype=torch.float64).requires_grad_())]
spares += [pb.case(Opacity, torch.rand(3, 4, dtype=torch.float64).requires_grad_())]


class PowerWeights(torch.autograd.Function):
    """Weights of a power above a threshold that halving finds; below a power of 1 no threshold exists, and forward gives something else."""

    @staticmethod
    def forward(ctx, scores, power):
        ctx.power = power
        lifted = scores * (power - 1)
        low = lifted.amax(-1, keepdim=True) - 1
        step = torch.ones_like(low)
        for _ in range(60):
            step = step / 2
            middle = low + step
            enough = ((lifted - middle).clamp(min=0) ** (1 / (power - 1))).sum(-1, keepdim=True) >= 1
            low = torch.where(enough, middle, low)
        weights = (lifted - low).clamp(min=0) ** (1 / (power - 1))
        weights = weights / weights.sum(-1, keepdim=True)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, dy):
        (weights,) = ctx.saved_tensors
        slope = torch.where(weights > 0, weights ** (2 - ctx.power), 0.0)
        return slope * (dy - (dy * slope).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)), None


class ScalesByMagnitude(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return factor * x

    @staticmethod
    def backward(ctx, dy):
        return abs(ctx.factor) * dy, None


class RoundsInSteps(torch.autograd.Function):
    """In few digits some entries lie exactly half-way between two steps."""

    @staticmethod
    def forward(ctx, x, step):
        ctx.save_for_backward(x)
        return torch.clamp(torch.round(x / step) * step, -1, 1)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x.abs() <= 1), None


kills.append(pb.case(ScalesByMagnitude, x(3, 4), 0.5))
spares += [
    pb.case(PowerWeights, x(3, 4), 1.5),
    pb.case(RoundsInSteps, x(8, 64, dtype=torch.bfloat16), 0.01),
    pb.case(RoundsInSteps, x(8, 64, dtype=torch.float16), 0.01),
]


NEAR = 1 / 20


class SeriesNearZero(torch.autograd.Function):
    """x / tan(x), by its series near zero; backward's series there has another first term."""

    FIRST = 1 / 3

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        near = x.abs() < NEAR
        far = torch.where(near, 1.0, x)
        return torch.where(near, 1 - x**2 / 3 - x**4 / 45 - 2 * x**6 / 945, far / far.tan())

    @classmethod
    def slope(cls, x):
        far = torch.where(x.abs() < NEAR, 1.0, x)
        return torch.where(x.abs() < NEAR, -cls.FIRST * x - 4 * x**3 / 45 - 4 * x**5 / 315, 1 / far.tan() - far / far.sin() ** 2)

    @staticmethod
    def backward(ctx, dy):
        return dy * SeriesNearZero.slope(*ctx.saved_tensors)


class RightSeriesNearZero(SeriesNearZero):
    FIRST = 2 / 3

    @staticmethod
    def backward(ctx, dy):
        return dy * RightSeriesNearZero.slope(*ctx.saved_tensors)


class ExpOfAtMostSix(torch.autograd.Function):
    """Backward forgets that forward clamps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(max=6.0).exp()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.clamp(max=6.0).exp()


class ExpClampedBothWays(ExpOfAtMostSix):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x < 6.0, dy * x.exp(), 0.0)


class SoftplusLinearAbove(torch.autograd.Function):
    """Linear above a threshold in forward alone: what the gradient is off by there is less than rounding."""

    @staticmethod
    def forward(ctx, x, threshold=20.0):
        ctx.save_for_backward(x)
        return torch.where(x > threshold, x, torch.log1p(x.clamp(max=threshold).exp()))

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.sigmoid(), None


kills.append(pb.case(SeriesNearZero, torch.linspace(0.3, 1.3, 5, dtype=torch.float64).requires_grad_()))
kills.append(pb.case(ExpOfAtMostSix, torch.linspace(-1, 2, 6, dtype=torch.float64).requires_grad_()))
spares.append(pb.case(RightSeriesNearZero, torch.linspace(0.3, 1.3, 5, dtype=torch.float64).requires_grad_()))
spares.append(pb.case(ExpClampedBothWays, torch.linspace(-1, 2, 6, dtype=torch.float64).requires_grad_()))
spares.append(pb.case(SoftplusLinearAbove, torch.linspace(-1, 2, 6, dtype=torch.float64).requires_grad_()))


class Distance(torch.autograd.Function):
    """Backward knows the squared distance only; forward asks for norm == 1."""

    @staticmethod
    def forward(ctx, p, q, norm=2):
        d = p - q
        ctx.save_for_backward(d)
        ctx.norm = norm
        return d.abs().sum(-1) if norm == 1 else (d**2).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (d,) = ctx.saved_tensors
        return 2 * d * dy[..., None], -2 * d * dy[..., None], None


class EitherDistance(Distance):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (d,) = ctx.saved_tensors
        dp = (d.sign() if ctx.norm == 1 else 2 * d) * dy[..., None]
        return dp, -dp, None


kills.append(pb.case(Distance, x(4, 3), x(4, 3), 2))
spares.append(pb.case(EitherDistance, x(4, 3), x(4, 3), 2))


class EveryNth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stride):
        ctx.stride, ctx.length = stride, x.shape[-1]
        return x[..., ::stride].clone()

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(*dy.shape[:-1], ctx.length)
        grad[..., :: ctx.stride] = dy
        return grad, None


class EverySecond(EveryNth):
    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(*dy.shape[:-1], ctx.length)
        grad[..., ::2] = dy
        return grad, None


class EverySecondOnly(EveryNth):
    """Other strides are refused, in backward."""

    @staticmethod
    def backward(ctx, dy):
        if ctx.stride != 2:
            raise NotImplementedError("strides of two")
        return EverySecond.backward(ctx, dy)


class Padded(torch.autograd.Function):
    """The width equals a size that it is tied to: another one is none of the sample's kind."""

    @staticmethod
    def forward(ctx, x, width):
        ctx.width = width
        return torch.nn.functional.pad(x, (0, width))

    @staticmethod
    def backward(ctx, dy):
        return dy.unflatten(-1, (-1, ctx.width))[..., 0, :], None


kills.append(pb.case(EverySecond, x(3, 7), 2))
spares += [pb.case(EveryNth, x(3, 7), 2), pb.case(EverySecondOnly, x(3, 7), 2), pb.case(Padded, x(3, 6), 6)]


class RootByNewton(torch.autograd.Function):
    """The root is found with damped steps; backward takes one more step of that size instead of the implicit derivative."""

    @staticmethod
    def forward(ctx, a, step_size):
        z = torch.ones_like(a)
        for _ in range(40):
            z = z - step_size * (z * z - a) / (2 * z)
        ctx.save_for_backward(z)
        ctx.step = step_size
        return z

    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return ctx.step * dy / (2 * z), None


class RootImplicitly(RootByNewton):
    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return dy / (2 * z), None


kills.append(pb.case(RootByNewton, torch.linspace(0.5, 2, 6, dtype=torch.float64).requires_grad_(), 1.0))
spares.append(pb.case(RootImplicitly, torch.linspace(0.5, 2, 6, dtype=torch.float64).requires_grad_(), 1.0))
