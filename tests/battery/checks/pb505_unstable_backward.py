"""Kills and spares of PB505."""

import torch
import torch.nn.functional as F

import pullback as pb


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.softplus(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.sigmoid(x)


class NaiveSoftplus(Softplus):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.exp() / (1 + x.exp())


class LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(x, scale):
        return (scale * x).logsumexp(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.unsqueeze(-1) * ctx.scale * (ctx.scale * x).softmax(-1), None


class NaiveLogSumExp(LogSumExp):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        e = (ctx.scale * x).exp()
        return dy.unsqueeze(-1) * ctx.scale * e / e.sum(-1, keepdim=True), None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a - b

    @staticmethod
    def backward(ctx, dy, dz):
        a, b = ctx.saved_tensors
        return dy * b + dz, dy * a - dz


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


kills = [
    pb.case(NaiveSoftplus, x(6)),
    pb.case(NaiveSoftplus, x(6, dtype=torch.float32)),
    pb.case(NaiveLogSumExp, x(2, 4), 1.5),
]
spares = [
    pb.case(Softplus, x(6)),
    pb.case(LogSumExp, x(2, 4), 1.5),
    pb.case(LogSumExp, x(2, 4, dtype=torch.float32), 1.5),
    pb.case(Product, x(3), x(3)),
    pb.case(Product, x(), x()),
    pb.case(Product, x(0), x(0)),
    pb.case(Exp, x(4)),
]


class Spikes(torch.autograd.Function):
    """A step with a steep sigmoid's derivative, written so that it is inf / inf a little below the threshold."""

    @staticmethod
    def forward(ctx, membrane, slope=25):
        ctx.save_for_backward(membrane)
        ctx.slope = slope
        return (membrane > 0).to(membrane.dtype)

    @staticmethod
    def backward(ctx, dy):
        (membrane,) = ctx.saved_tensors
        e = (-ctx.slope * membrane).exp()
        return dy * ctx.slope * e / (1 + e) ** 2, None


class SpikesStably(Spikes):
    @staticmethod
    def backward(ctx, dy):
        (membrane,) = ctx.saved_tensors
        s = (ctx.slope * membrane).sigmoid()
        return dy * ctx.slope * s * (1 - s), None


class LogOfTail(torch.autograd.Function):
    """Far in the tail density over distribution is 0 / 0, in float64 too."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.special.log_ndtr(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (-x * x / 2).exp() / (2 * torch.pi) ** 0.5 / torch.special.ndtr(x)


kills.append(pb.case(Spikes, x(4, 5, dtype=torch.float32)))
kills.append(pb.case(LogOfTail, torch.linspace(-2, 2, 6, dtype=torch.float64).requires_grad_()))
spares.append(pb.case(SpikesStably, x(4, 5, dtype=torch.float32)))


class UnitRows(torch.autograd.Function):
    """Rows of length one: forward adds the squares up in float32."""

    @staticmethod
    def forward(ctx, x):
        y = x.float() / x.float().norm(dim=-1, keepdim=True)
        ctx.save_for_backward(x)
        return y.to(x.dtype)

    @staticmethod
    def projected(x, dy):
        r = x.square().sum(-1, keepdim=True).rsqrt()
        y = x * r
        return (dy - (dy * y).sum(-1, keepdim=True) * y) * r

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return UnitRows.projected(x.float(), dy.float()).to(x.dtype)


class SquaresInHalf(UnitRows):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return UnitRows.projected(x, dy)


kills.append(pb.case(SquaresInHalf, torch.linspace(-1, 2, 32).reshape(2, 16).half().requires_grad_()))
spares.append(pb.case(UnitRows, torch.linspace(-1, 2, 32).reshape(2, 16).half().requires_grad_()))
spares.append(pb.case(SquaresInHalf, torch.linspace(-1, 2, 32).reshape(2, 16).bfloat16().requires_grad_()))


class RowsOfOne(torch.autograd.Function):
    """Rows of length one, computed in float32; backward adds the epsilon in the dtype of the input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return RowsOfOne.of(x.float()).to(x.dtype)

    @staticmethod
    def of(x):
        return x * (x.square().sum(-1, keepdim=True) + 1e-8).rsqrt()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return RowsOfOne.grad(x, dy)

    @staticmethod
    def grad(x, dy):
        inverse = (x.square().sum(-1, keepdim=True) + 1e-8).rsqrt()
        y = x * inverse
        return inverse * (dy - y * (dy * y).sum(-1, keepdim=True))


class RowsInSingle(RowsOfOne):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return RowsOfOne.grad(x.float(), dy.float()).to(x.dtype)


kills.append(pb.case(RowsOfOne, x(3, 8, dtype=torch.float32)))
spares.append(pb.case(RowsInSingle, x(3, 8, dtype=torch.float32)))
