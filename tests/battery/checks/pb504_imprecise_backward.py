"""Kills and spares of PB504."""

import torch

import pullback as pb


class Scale(torch.autograd.Function):
    """x * w for every row; grad_w sums over the rows."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


class RowByRow(Scale):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        total = torch.zeros_like(w)
        for row in dy * x:
            total = total + row
        return dy * w, total


class RowByRowInSingle(Scale):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        wide = torch.promote_types(x.dtype, torch.float32)
        total = torch.zeros_like(w, dtype=wide)
        for row in (dy * x).to(wide):
            total = total + row
        return dy * w, total.to(w.dtype)


class CumulatedSum(torch.autograd.Function):
    @staticmethod
    def forward(x, bias):
        return x + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        total = dy[0]
        for row in dy[1:]:
            total = total + row
        return dy, total


def wide_of(x):
    return x if x.dtype == torch.float64 else x.float()


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        wide = wide_of(logits)
        lse = wide.logsumexp(-1)
        rows = torch.arange(len(labels))
        p = (wide - lse[:, None]).exp()
        p[rows, labels] -= 1
        ctx.save_for_backward(p.to(logits.dtype))
        return (lse - wide[rows, labels]).sum().to(logits.dtype)

    @staticmethod
    def backward(ctx, dy):
        (p,) = ctx.saved_tensors
        return p * dy, None


class RoundsFirst(CrossEntropy):
    @staticmethod
    def forward(ctx, logits, labels):
        wide = wide_of(logits)
        lse = wide.logsumexp(-1)
        rows = torch.arange(len(labels))
        p = (wide - lse[:, None]).exp().to(logits.dtype)
        p[rows, labels] -= 1
        ctx.save_for_backward(p)
        return (lse - wide[rows, labels]).sum().to(logits.dtype)


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * (1 - y * y)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        wide = y.float() if y.dtype == torch.bfloat16 else y
        return (wide * (dy - (dy * wide).sum(-1, keepdim=True))).to(dy.dtype)


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


labels = torch.tensor([0, 2, 3])

kills = [
    pb.case(RowByRow, x(3, 4), x(4)),
    pb.case(RowByRow, x(3, 4, dtype=torch.bfloat16), x(4, dtype=torch.bfloat16)),
    pb.case(CumulatedSum, x(4, 3), x(3)),
    pb.case(RoundsFirst, x(3, 4), labels),
]
spares = [
    pb.case(Scale, x(3, 4), x(4)),
    pb.case(Scale, x(3, 4, dtype=torch.bfloat16), x(4, dtype=torch.bfloat16)),
    pb.case(RowByRowInSingle, x(3, 4), x(4)),
    pb.case(CrossEntropy, x(3, 4), labels),
    pb.case(Tanh, x(3, 4)),
    pb.case(Tanh, x()),
    pb.case(Tanh, x(0)),
    pb.case(Softmax, x(3, 4)),
    pb.case(Softmax, x(3, 4, dtype=torch.float32)),
]


class Outer(torch.autograd.Function):
    """Rows that two arguments share by chance: the result grows with their square."""

    @staticmethod
    def forward(ctx, q, cos):
        ctx.save_for_backward(cos)
        return q * cos[:, None, None]

    @staticmethod
    def backward(ctx, dy):
        return (dy * ctx.saved_tensors[0][:, None, None]).sum(0), None


spares.append(pb.case(Outer, x(2, 3), x(2, 3).detach()))


class NormalisesRows(torch.autograd.Function):
    """Sums along the last axis in float32, whatever the dtype is."""

    @staticmethod
    def forward(ctx, x):
        wide = x if x.dtype == torch.float64 else x.float()
        ctx.save_for_backward(x)
        return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)

    @staticmethod
    def squares(x):
        return (x if x.dtype == torch.float64 else x.float()).square().sum(-1, keepdim=True)

    @classmethod
    def gradient(cls, x, dy, squares):
        r = (squares / x.shape[-1] + 1e-6).rsqrt().to(torch.promote_types(x.dtype, torch.float32))
        n, d = x.to(r.dtype) * r, dy.to(r.dtype)
        return (r * (d - n * (d * n).mean(-1, keepdim=True))).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return NormalisesRows.gradient(x, dy, NormalisesRows.squares(x))


class AddsSquaresOneByOne(NormalisesRows):
    """In bfloat16 the sum along a long row stops growing."""

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        squares = torch.zeros_like(x[..., :1])
        for i in range(x.shape[-1]):
            squares = squares + x[..., i : i + 1] ** 2
        return NormalisesRows.gradient(x, dy, squares)


kills.append(pb.case(AddsSquaresOneByOne, x(3, 8)))
spares.append(pb.case(NormalisesRows, x(3, 8)))
