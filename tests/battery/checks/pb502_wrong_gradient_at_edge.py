"""Kills and spares of PB502."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.prod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return (dy * y).unsqueeze(-1) / x


class MaskedProduct(Product):
    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return ((dy * y).unsqueeze(-1) / x).masked_fill(x == 0, 0)


class RightProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.prod(-1)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        n = x.shape[-1]
        others = x.unsqueeze(-2).expand(*x.shape[:-1], n, n).clone()
        others.diagonal(dim1=-2, dim2=-1).fill_(1)
        return dy.unsqueeze(-1) * others.prod(-1)


class Length(torch.autograd.Function):
    @staticmethod
    def forward(x, eps):
        return (x.square().sum() + eps).sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.eps = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy * x / y, None


class LengthWithoutEps(Length):
    @staticmethod
    def backward(ctx, dy):
        x, _ = ctx.saved_tensors
        y = (x.square().sum() + 1e-6).sqrt()
        return dy * x / y, None


class Threshold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x)
        ctx.threshold = threshold
        return torch.where(x > threshold, x, 0.1 * x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x > ctx.threshold, dy, 0.1 * dy), None


class AssumesZero(Threshold):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, dy, 0.1 * dy), None


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x.clamp(min=0.1) ** n

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x > 0.1) * ctx.n * x.clamp(min=0.1) ** (ctx.n - 1), None


class OnlySecondPower(Power):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x > 0.1) * 2 * x.clamp(min=0.1), None


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope=0.0):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x >= 0, dy, ctx.slope * dy), None


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort(-1)
        ctx.save_for_backward(order)
        return values

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(dy).scatter(-1, order, dy)


class Sqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sqrt()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy / (2 * y)


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        r = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, r)
        return x * r

    @staticmethod
    def backward(ctx, dy):
        x, r = ctx.saved_tensors
        return dy * r - x * r**3 * (dy * x).mean(-1, keepdim=True), None


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) >= p
        ctx.save_for_backward(mask)
        ctx.p = p
        return x * mask / (1 - p)

    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return dy * mask / (1 - ctx.p), None


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def positive(*shape):
    return torch.rand(shape, dtype=torch.float64).add_(0.5).requires_grad_()


kills = [
    pb.case(Product, x(2, 3)),
    pb.case(MaskedProduct, x(2, 3)),
    pb.case(MaskedProduct, x(4, dtype=torch.float32)),
    pb.case(LengthWithoutEps, x(4), 1e-6),
    pb.case(AssumesZero, x(6), 0.0),
    pb.case(OnlySecondPower, positive(4), 2),
]
spares = [
    pb.case(RightProduct, x(2, 3)),
    pb.case(Length, x(4), 1e-6),
    pb.case(Length, x(4), 0.0),
    pb.case(Threshold, x(6), 0.5),
    pb.case(Power, positive(4), 2),
    pb.case(Relu, x(6)),
    pb.case(Relu, x(6), 0.2),
    pb.case(Sorted, x(2, 4)),
    pb.case(Sqrt, positive(4)),
    pb.case(Normalise, x(2, 4), 1e-6),
    pb.case(Normalise, x(2, 4, dtype=torch.float32), 1e-6),
    pb.case(Dropout, x(10), 0.5),
]


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        values, order = x.topk(k, -1)
        ctx.save_for_backward(order)
        ctx.shape = x.shape
        return values

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return dy.new_zeros(ctx.shape).scatter(-1, order, dy), None


spares += [pb.case(Largest, x(3, 5), 2), pb.case(Largest, x(3, 7), 4), pb.case(Sorted, x(3, 7))]


class SortsByNumpy(torch.autograd.Function):
    """Where all entries are tied, the middle one has one slope along every direction and still no gradient."""

    @staticmethod
    def forward(ctx, x):
        values = x.detach().cpu().numpy()
        order = torch.from_numpy(values.argsort(0, kind="stable"))
        ctx.save_for_backward(order)
        return torch.from_numpy(values.copy()).gather(0, order)

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(dy).scatter(0, order, dy)


spares += [pb.case(SortsByNumpy, x(5, 3)), pb.case(SortsByNumpy, x(7))]


class SoftMinimum(torch.autograd.Function):
    """At a temperature of 1e-12 the exponent has four digits; nothing is wrong with the formula."""

    @staticmethod
    def forward(ctx, x, temperature):
        y = -temperature * torch.logsumexp(-x / temperature, -1)
        ctx.save_for_backward(x, y)
        ctx.temperature = temperature
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * torch.exp((y[..., None] - x) / ctx.temperature), None


class ColdestMinimum(SoftMinimum):
    """Wrong, not imprecise: backward is that of another temperature below 1e-6."""

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * torch.exp((y[..., None] - x) / max(ctx.temperature, 1e-6)) * min(1.0, 0.5 + ctx.temperature * 1e6), None


def around_ten(*shape):
    return (x(*shape).detach() + 10).requires_grad_()


kills.append(pb.case(ColdestMinimum, around_ten(3, 4), 0.5))
spares += [pb.case(SoftMinimum, around_ten(2, 7), 0.5), pb.case(SoftMinimum, around_ten(5), 0.01)]


class Picks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, *dy.shape[1:]).index_add_(0, index, dy), None


class PicksOnce(Picks):
    """A row that is picked twice gets the last of its gradients instead of their sum."""

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        dx = dy.new_zeros(ctx.rows, *dy.shape[1:])
        dx[index] = dy
        return dx, None


class Reorders(torch.autograd.Function):
    """The inverse permutation gives the gradient, of permutations only."""

    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return dy[order.argsort()], None


class Places(torch.autograd.Function):
    """Who places two rows in one place asks for one of them."""

    @staticmethod
    def forward(ctx, x, places):
        ctx.save_for_backward(places)
        out = torch.zeros_like(x)
        out[places] = x
        return out

    @staticmethod
    def backward(ctx, dy):
        (places,) = ctx.saved_tensors
        return dy[places], None


class SegmentSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, offsets):
        ctx.save_for_backward(offsets)
        ctx.rows = x.shape[0]
        return torch.stack([part.sum(0) for part in x.tensor_split(offsets[1:-1])])

    @staticmethod
    def backward(ctx, dy):
        (offsets,) = ctx.saved_tensors
        return dy.repeat_interleave(offsets.diff(), 0), None


class MarksStarts(SegmentSums):
    """Two segments that start at the same row are marked once, and all that follow are one segment behind."""

    @staticmethod
    def backward(ctx, dy):
        (offsets,) = ctx.saved_tensors
        starts = torch.zeros(ctx.rows, dtype=torch.int64, device=offsets.device)
        starts[offsets[1:-1]] = 1
        return dy[starts.cumsum(0)], None


class MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep):
        ctx.save_for_backward(keep)
        return (x * keep).sum() / keep.sum().clamp(min=1)

    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        return dy * keep / keep.sum().clamp(min=1), None


class MeanOfNothing(MaskedMean):
    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        return dy * keep / keep.sum(), None


class PairSum(torch.autograd.Function):
    """A weight that may well be negative: the larger of two products."""

    @staticmethod
    def forward(ctx, x, advantage, bound):
        ctx.save_for_backward(x, advantage)
        ctx.bound = bound
        return torch.minimum(x * advantage, x.clamp(max=bound) * advantage)

    @staticmethod
    def backward(ctx, dy):
        x, advantage = ctx.saved_tensors
        return dy * advantage * ((x <= ctx.bound) | (advantage < 0)), None, None


class ClipsOneSide(PairSum):
    @staticmethod
    def backward(ctx, dy):
        x, advantage = ctx.saved_tensors
        return dy * advantage * (x <= ctx.bound), None, None


class GrowsByLength(torch.autograd.Function):
    """A length is never negative."""

    @staticmethod
    def forward(ctx, x, length):
        ctx.save_for_backward(length)
        return x * length.abs()

    @staticmethod
    def backward(ctx, dy):
        (length,) = ctx.saved_tensors
        return dy * length, None


some, order, offsets = torch.tensor([2, 0]), torch.tensor([2, 0, 3, 1]), torch.tensor([0, 2, 3, 5])
keep = torch.tensor([[True, False, True, True], [True, True, False, True], [False, False, True, True]])
kills += [
    pb.case(PicksOnce, x(4, 3), some),
    pb.case(PicksOnce, x(4, 3), order),
    pb.case(MarksStarts, x(5, 3), offsets),
    pb.case(MeanOfNothing, x(3, 4), keep),
    pb.case(ClipsOneSide, x(3, 4), positive(3, 1).detach(), 0.3),
]
spares += [
    pb.case(Picks, x(4, 3), some),
    pb.case(Picks, x(4, 3), order),
    pb.case(Reorders, x(4, 3), order),
    pb.case(Places, x(4, 3), order),
    pb.case(SegmentSums, x(5, 3), offsets),
    pb.case(MaskedMean, x(3, 4), keep),
    pb.case(PairSum, x(3, 4), positive(3, 1).detach(), 0.3),
    pb.case(GrowsByLength, x(3, 4), positive(4).detach()),
]


class ScalesByMagnitude(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return x * gain.abs()

    @staticmethod
    def backward(ctx, dy):
        x, gain = ctx.saved_tensors
        return dy * gain.abs(), (dy * x).sum(0) * gain.sign()


class ForgetsTheSign(ScalesByMagnitude):
    @staticmethod
    def backward(ctx, dy):
        x, gain = ctx.saved_tensors
        return dy * gain.abs(), (dy * x).sum(0)


class LogOfPositive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt() * x.log()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x.log() / 2 + 1) / x.sqrt()


def positive(*shape):
    return (x(*shape).detach().abs() + 0.25).requires_grad_()


class PairEnergies(torch.autograd.Function):
    """Padded pairs hold -1."""

    @staticmethod
    def forward(ctx, x, first, second):
        d = x[first] - x[second]
        ctx.save_for_backward(d, first, second)
        ctx.count = len(x)
        return torch.where((first < 0)[:, None], 0.0, d.square())

    @staticmethod
    def backward(ctx, dy):
        d, first, second = ctx.saved_tensors
        force = torch.where((first < 0)[:, None], 0.0, 2 * d * dy)
        grad = dy.new_zeros((ctx.count, d.shape[1]))
        return grad.index_put((first,), force, accumulate=True).index_put((second,), -force, accumulate=True), None, None


class PadsPullOnTheLast(PairEnergies):
    @staticmethod
    def backward(ctx, dy):
        d, first, second = ctx.saved_tensors
        force = 2 * d * dy
        grad = dy.new_zeros((ctx.count, d.shape[1]))
        return grad.index_put((first,), force, accumulate=True).index_put((second,), -force, accumulate=True), None, None


class SymmetricExponential(torch.autograd.Function):
    """Autograd through eigh is NaN where eigenvalues are equal; the derivative exists."""

    @staticmethod
    def forward(ctx, x):
        values, vectors = torch.linalg.eigh((x + x.mT) / 2)
        ctx.save_for_backward(values, vectors)
        return vectors * values.exp()[..., None, :] @ vectors.mT

    @classmethod
    def through(cls, ctx, dy, equal):
        values, vectors = ctx.saved_tensors
        a, b = values[..., :, None], values[..., None, :]
        near = (a - b).abs() < 1e-9
        quotients = torch.where(near, equal(a, b), (a.exp() - b.exp()) / torch.where(near, 1.0, a - b))
        grad = vectors @ (quotients * (vectors.mT @ dy @ vectors)) @ vectors.mT
        return (grad + grad.mT) / 2

    @classmethod
    def backward(cls, ctx, dy):
        return cls.through(ctx, dy, lambda a, b: ((a + b) / 2).exp())


class ForgetsEqualEigenvalues(SymmetricExponential):
    @classmethod
    def backward(cls, ctx, dy):
        return cls.through(ctx, dy, lambda a, b: torch.eye(a.shape[-2], dtype=a.dtype, device=a.device) * a.exp())


pairs = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 3, 3])
kills += [
    pb.case(ForgetsTheSign, x(3, 4), positive(4)),
    pb.case(PadsPullOnTheLast, x(4, 3), *pairs),
    pb.case(ForgetsEqualEigenvalues, x(3, 3)),
]
spares += [
    pb.case(ScalesByMagnitude, x(3, 4), positive(4)),
    pb.case(LogOfPositive, positive(3, 4)),
    pb.case(PairEnergies, x(4, 3), *pairs),
    pb.case(SymmetricExponential, x(3, 3)),
]


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


class Composites(torch.autograd.Function):
    """One layer over a background, whose part in the gradient of the layer's opacity is missing: none in front of black."""

    BACKGROUND = False

    @staticmethod
    def forward(ctx, colour, opacity, background):
        ctx.save_for_backward(colour, opacity, background)
        return opacity[:, None] * colour + (1 - opacity)[:, None] * background

    @classmethod
    def gradients(cls, ctx, dy):
        colour, opacity, background = ctx.saved_tensors
        difference = colour - background if cls.BACKGROUND else colour
        return opacity[:, None] * dy, (dy * difference).sum(1), None

    @staticmethod
    def backward(ctx, dy):
        return Composites.gradients(ctx, dy)


class CompositesOverBackground(Composites):
    BACKGROUND = True

    @staticmethod
    def backward(ctx, dy):
        return CompositesOverBackground.gradients(ctx, dy)


class Steps(torch.autograd.Function):
    """Steps of an explicit method; backward takes them all to be forward in time."""

    @staticmethod
    def length(dt):
        return dt.abs()

    @staticmethod
    def forward(ctx, y, times):
        states = [y]
        for dt in times.diff():
            states.append(states[-1] + dt * states[-1].sin())
        ctx.save_for_backward(torch.stack(states), times)
        return states[-1]

    @classmethod
    def gradients(cls, ctx, dy):
        states, times = ctx.saved_tensors
        for state, dt in zip(states[:-1].flip(0), times.diff().flip(0), strict=True):
            dy = dy + dy * cls.length(dt) * state.cos()
        return dy, None

    @staticmethod
    def backward(ctx, dy):
        return Steps.gradients(ctx, dy)


class StepsEitherWay(Steps):
    @staticmethod
    def length(dt):
        return dt

    @staticmethod
    def backward(ctx, dy):
        return StepsEitherWay.gradients(ctx, dy)


def layers():
    at = torch.linspace(0.1, 0.9, 12, dtype=torch.float64)
    return at.reshape(4, 3).clone().requires_grad_(), at[:4].clone().requires_grad_(), torch.zeros(3, dtype=torch.float64)


def motion():
    return torch.linspace(0.1, 0.9, 3, dtype=torch.float64).requires_grad_(), torch.linspace(0, 1, 4, dtype=torch.float64)


kills.append(pb.case(Composites, *layers()))
kills.append(pb.case(Steps, *motion()))
spares.append(pb.case(CompositesOverBackground, *layers()))
spares.append(pb.case(StepsEitherWay, *motion()))


class Directions(torch.autograd.Function):
    """Rows of length 1; a row of zeros stays one, where forward jumps and backward divides by its length."""

    @staticmethod
    def forward(ctx, rows):
        length = rows.norm(dim=-1, keepdim=True)
        unit = torch.where(length > 0, rows / torch.where(length > 0, length, 1.0), 0.0)
        ctx.save_for_backward(unit, length)
        return unit

    @staticmethod
    def backward(ctx, dy):
        unit, length = ctx.saved_tensors
        return (dy - unit * (unit * dy).sum(-1, keepdim=True)) / length


class DirectionsOfAny(Directions):
    @staticmethod
    def backward(ctx, dy):
        unit, length = ctx.saved_tensors
        moved = (dy - unit * (unit * dy).sum(-1, keepdim=True)) / torch.where(length > 0, length, 1.0)
        return torch.where(length > 0, moved, 0.0)


kills.append(pb.case(Directions, torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()))
spares.append(pb.case(DirectionsOfAny, torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()))


class DrawsLogistic(torch.autograd.Function):
    """A sample from a number in (0, 1): others are no levels of a distribution, though forward clamps them."""

    @staticmethod
    def forward(ctx, u, scale):
        ctx.save_for_backward(u)
        return scale * torch.logit(u, eps=1e-9)

    @staticmethod
    def backward(ctx, dy):
        (u,) = ctx.saved_tensors
        return None, (dy * torch.logit(u.abs())).sum()


spares.append(pb.case(DrawsLogistic, torch.linspace(0.1, 0.8, 6, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64).requires_grad_()))


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


kills.append(pb.case(AssumesZero, torch.tensor([0.5, -0.25, 0.75, -2.0], dtype=torch.float64, requires_grad=True), 0.0))


class TurnsPages(torch.autograd.Function):
    """Pages of lines are turned by an offset, which comes after four sizes."""

    @staticmethod
    def forward(ctx, x, pages, lines, columns, letters, offset):
        ctx.offset = offset
        return torch.roll(x.view(pages, lines, columns, letters), offset, 1)

    @staticmethod
    def backward(ctx, dy):
        return torch.roll(dy, -ctx.offset, 1), None, None, None, None, None


class TurnsPagesOn(TurnsPages):
    @staticmethod
    def backward(ctx, dy):
        return torch.roll(dy, ctx.offset, 1), None, None, None, None, None


kills.append(pb.case(TurnsPagesOn, x(2, 3, 4, 5), 2, 3, 4, 5, 0))
spares.append(pb.case(TurnsPages, x(2, 3, 4, 5), 2, 3, 4, 5, 0))


class Samples(torch.autograd.Function):
    """Values between entries, at a rate: how many there are is rounded."""

    @staticmethod
    def weights(count, many, step, like):
        at = torch.arange(many, dtype=like.dtype, device=like.device) * step
        return (1 - (at[:, None] - torch.arange(count, dtype=like.dtype, device=like.device)).abs()).clamp(min=0)

    @staticmethod
    def forward(ctx, x, rate):
        ctx.count, ctx.rate = len(x), rate
        return Samples.weights(len(x), int(len(x) * rate), 1 / rate, x) @ x

    @staticmethod
    def backward(ctx, dy):
        return Samples.weights(ctx.count, len(dy), 1 / ctx.rate, dy).mT @ dy, None


class SamplesByCount(Samples):
    @staticmethod
    def backward(ctx, dy):
        return Samples.weights(ctx.count, len(dy), ctx.count / max(len(dy), 1), dy).mT @ dy, None


kills.append(pb.case(SamplesByCount, x(6), 2.0))
spares.append(pb.case(Samples, x(6), 2.0))


class Aligns(torch.autograd.Function):
    """Scores of one label or the blank; the two are never the same class, or the second write would replace the first."""

    @staticmethod
    def forward(ctx, scores, labels, blank):
        if scores.shape[1] < 2:
            raise ValueError("there must be another class than the blank")
        rows = torch.arange(len(labels))
        ctx.save_for_backward(scores, labels)
        ctx.blank = blank
        return scores[rows, labels].exp() + scores[:, blank].square()

    @staticmethod
    def slopes(ctx, dy, blank):
        scores, labels = ctx.saved_tensors
        d, rows = torch.zeros_like(scores), torch.arange(len(labels))
        d[rows, labels] = dy * scores[rows, labels].exp()
        d[:, blank] = 2 * dy * scores[:, ctx.blank]
        return d, None, None

    @staticmethod
    def backward(ctx, dy):
        return Aligns.slopes(ctx, dy, ctx.blank)


class AlignsToTheFirst(Aligns):
    @staticmethod
    def backward(ctx, dy):
        return Aligns.slopes(ctx, dy, 0)


kills.append(pb.case(AlignsToTheFirst, x(3, 5), torch.tensor([1, 3, 2]), 0))
spares.append(pb.case(Aligns, x(3, 5), torch.tensor([1, 3, 2]), 0))


class AddsRows(torch.autograd.Function):
    """Sums rows of a table; the row to be left out counts as zero."""

    @staticmethod
    def forward(ctx, table, index, padding_idx):
        keep = (index != padding_idx).to(table.dtype)
        ctx.save_for_backward(index, keep)
        ctx.rows = len(table)
        return (table[index] * keep[..., None]).sum(-2)

    @staticmethod
    def backward(ctx, dy):
        index, keep = ctx.saved_tensors
        spread = dy[..., None, :] * keep[..., None]
        return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), spread.flatten(0, -2)), None, None


class AddsAllRows(AddsRows):
    @staticmethod
    def backward(ctx, dy):
        index, _ = ctx.saved_tensors
        spread = dy[..., None, :].expand(*index.shape, dy.shape[-1])
        return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), spread.flatten(0, -2)), None, None


class LooksUpRows(torch.autograd.Function):
    """As torch's embedding: the row has a value, and is not trained."""

    @staticmethod
    def forward(ctx, table, index, padding_idx):
        ctx.save_for_backward(index)
        ctx.rows, ctx.padding_idx = len(table), padding_idx
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        d = dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, index.flatten(), dy.flatten(0, -2))
        d[ctx.padding_idx] = 0
        return d, None, None


kills.append(pb.case(AddsAllRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))
spares.append(pb.case(AddsRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))
spares.append(pb.case(LooksUpRows, x(6, 4), torch.tensor([[1, 3], [5, 1]]), 0))


class OneAgainstAll(torch.autograd.Function):
    """A label may be the number of classes: none of them."""

    @staticmethod
    def forward(ctx, scores, labels):
        sign = torch.where(torch.arange(scores.shape[1], device=scores.device) == labels[:, None], 1.0, -1.0).to(scores)
        ctx.save_for_backward(scores, sign)
        return torch.nn.functional.softplus(-sign * scores).sum(1)

    @staticmethod
    def backward(ctx, dy):
        scores, sign = ctx.saved_tensors
        return -dy[:, None] * sign * torch.sigmoid(-sign * scores), None


class OneAgainstAllOfLast(OneAgainstAll):
    @staticmethod
    def forward(ctx, scores, labels):
        out = OneAgainstAll.forward(ctx, scores, labels)
        last = labels.clamp(max=scores.shape[1] - 1)
        ctx.save_for_backward(scores, 2 * torch.nn.functional.one_hot(last, scores.shape[1]).to(scores) - 1)
        return out


spares.append(pb.case(LooksUpRows, x(6, 4), torch.tensor([[1, 3], [0, 1]]), 0))


kills.append(pb.case(OneAgainstAllOfLast, x(4, 3), torch.tensor([0, 2, 1, 2])))
spares.append(pb.case(OneAgainstAll, x(4, 3), torch.tensor([0, 2, 1, 2])))
