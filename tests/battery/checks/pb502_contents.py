"""Kills and spares of PB502 with other contents of what is not differentiated."""

import torch

import pullback as pb


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def positive(*shape):
    return (x(*shape).detach().abs() + 0.25).requires_grad_()


kills = []
spares = []


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


class Margin(torch.autograd.Function):
    """A loss with targets of -1 and 1."""

    @staticmethod
    def forward(ctx, score, target, margin):
        ctx.save_for_backward(score, target)
        ctx.margin = margin
        return (margin - score * target).clamp(min=0).square().mean()

    @staticmethod
    def backward(ctx, dy):
        score, target = ctx.saved_tensors
        return -dy * 2 * (ctx.margin - score * target).clamp(min=0) * target / score.numel(), None, None


class MarginOfPositive(Margin):
    @staticmethod
    def backward(ctx, dy):
        score, target = ctx.saved_tensors
        return -dy * 2 * (ctx.margin - score * target).clamp(min=0) / score.numel(), None, None


class ShareOfLabels(torch.autograd.Function):
    """Labels of 0 and 1, which backward takes at their word."""

    @staticmethod
    def forward(ctx, p, target):
        of_label = p * target + (1 - p) * (1 - target)
        ctx.save_for_backward(p, target)
        return of_label.square().mean()

    @staticmethod
    def backward(ctx, dy):
        p, target = ctx.saved_tensors
        return dy * 2 * (target * p - (1 - target) * (1 - p)) / p.numel(), None


def likely():
    return torch.linspace(0.2, 0.8, 6, dtype=torch.float64).requires_grad_()


kills.append(pb.case(MarginOfPositive, x(2, 3), torch.ones(2, 3, dtype=torch.float64), 1.0))
spares.append(pb.case(Margin, x(2, 3), torch.ones(2, 3, dtype=torch.float64), 1.0))
spares.append(pb.case(ShareOfLabels, likely(), torch.ones(6, dtype=torch.float64)))


class ScalesByPowers(torch.autograd.Function):
    """Two to the power of whole numbers: in backward in whole numbers, among which there is no half."""

    @staticmethod
    def forward(ctx, x, exponent):
        ctx.save_for_backward(exponent)
        return x * (2.0**exponent).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (exponent,) = ctx.saved_tensors
        return dy * torch.pow(2, exponent), None


class ScalesByHalvesToo(ScalesByPowers):
    @staticmethod
    def backward(ctx, dy):
        (exponent,) = ctx.saved_tensors
        return dy * (2.0**exponent).to(dy.dtype), None


class WeighsLabels(torch.autograd.Function):
    """A label and a weight for every row; no label is negative."""

    @staticmethod
    def forward(ctx, weight, labels):
        ctx.save_for_backward(weight, labels)
        return weight * torch.tensor([0.5, 2.0, 1.5, 3.0], dtype=weight.dtype, device=weight.device)[labels]

    @staticmethod
    def backward(ctx, dy):
        weight, labels = ctx.saved_tensors
        of_class = torch.tensor([0.5, 2.0, 1.5, 3.0], dtype=weight.dtype, device=weight.device)
        return dy * ((torch.arange(4, device=labels.device) == labels[:, None]).to(weight.dtype) @ of_class), None


kills.append(pb.case(ScalesByPowers, x(5), torch.tensor([0, 1, 2, 3, 1])))
spares.append(pb.case(ScalesByHalvesToo, x(5), torch.tensor([0, 1, 2, 3, 1])))
spares.append(pb.case(WeighsLabels, x(5), torch.tensor([0, 3, 2, 1, 3])))
