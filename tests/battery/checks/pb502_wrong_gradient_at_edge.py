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


kills.append(pb.case(AssumesZero, torch.tensor([0.5, -0.25, 0.75, -2.0], dtype=torch.float64, requires_grad=True), 0.0))


class SharesGradient(torch.autograd.Function):
    """Two counts say how much of the gradient goes on; where they are equal it is the derivative."""

    @staticmethod
    def forward(ctx, tokens, busy, all_workers):
        ctx.part = busy / all_workers
        return tokens.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.part, None, None


class TanhBelowOne(torch.autograd.Function):
    """Kept from one by an epsilon, which backward takes for no bound: off by as much as the epsilon where it is reached."""

    @staticmethod
    def forward(ctx, u, eps):
        y = u.tanh().clamp(eps - 1, 1 - eps)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y), None


spares.append(pb.case(SharesGradient, x(3, 4), 2, 2))
spares.append(pb.case(TanhBelowOne, torch.linspace(-3, 3, 9, dtype=torch.float64).requires_grad_(), 1e-4))
