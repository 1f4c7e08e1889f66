"""Kills and spares of PB606."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class Bilinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w + b

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = dy @ w.t()
        if ctx.needs_input_grad[1]:
            grad_w = x.t() @ dy
        if ctx.needs_input_grad[2]:
            grad_b = dy.sum(0)
        return grad_x, grad_w, grad_b


class Unbound(Bilinear):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            grad_x = dy @ w.t()
        if ctx.needs_input_grad[1]:
            grad_w = x.t() @ dy
        if ctx.needs_input_grad[2]:
            grad_b = dy.sum(0)
        return grad_x, grad_w, grad_b


class ReturnsEarly(Bilinear):
    @staticmethod
    def backward(ctx, dy):
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, None
        return Bilinear.backward(ctx, dy)


class WrongEntry(Bilinear):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_w = x.t() @ dy if ctx.needs_input_grad[0] else None
        return dy @ w.t(), grad_w, dy.sum(0)


class SavesConditionally(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if x.requires_grad:
            ctx.save_for_backward(x, w)
        else:
            ctx.save_for_backward(x)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class EagerGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        loss = (x - target).square().mean()
        if x.requires_grad:
            grad = 2 * (x - target) / x.numel()
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx, dy):
        (grad,) = ctx.saved_tensors
        return dy * grad, -dy * grad


class EagerGradientRight(EagerGradient):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(2 * (x - target) / x.numel())
        return (x - target).square().mean()


class ScaledWhenFrozen(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x * w if w.requires_grad else x * w.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class ZeroInsteadOfNeeded(Bilinear):
    @staticmethod
    def backward(ctx, dy):
        grad_x, grad_w, grad_b = Bilinear.backward(ctx, dy)
        if not ctx.needs_input_grad[1]:
            grad_x = torch.zeros_like(grad_x)
        return grad_x, grad_w, grad_b


class TrainsOnly(Bilinear):
    @staticmethod
    def forward(ctx, x, w, b):
        if not w.requires_grad:
            raise ValueError("w must require grad: use linear() for inference")
        return Bilinear.forward(ctx, x, w, b)


class ComputesAll(Bilinear):
    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy, dy.sum(0)


class AnyNeeded(Bilinear):
    @staticmethod
    def backward(ctx, dy):
        if not any(ctx.needs_input_grad):
            return None, None, None
        return Bilinear.backward(ctx, dy)


class AddsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class SumAndIndex(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = x * w
        index = y.argmax(-1)
        ctx.mark_non_differentiable(index)
        return y, index

    @staticmethod
    def backward(ctx, dy, _):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def two_layers(a, w, b):
    return Bilinear.apply(a, w, b).tanh() * b


def two_layers_unbound(a, w, b):
    return Unbound.apply(a, w, b).tanh()


kills = [
    pb.case(Unbound, x(3, 4), x(4, 2), x(2)),
    pb.case(ReturnsEarly, x(3, 4), x(4, 2), x(2)),
    pb.case(WrongEntry, x(3, 4), x(4, 2), x(2)),
    pb.case(SavesConditionally, x(3), x(3)),
    pb.case(EagerGradient, x(3), torch.randn(3, dtype=torch.float64)),
    pb.case(EagerGradient, x(3), x(3)),
    pb.case(ScaledWhenFrozen, x(3), x(3)),
    pb.case(ZeroInsteadOfNeeded, x(3, 4), x(4, 2), x(2)),
    pb.case(two_layers_unbound, x(3, 4), x(4, 2), x(2)),
]
spares = [
    pb.case(Bilinear, x(3, 4), x(4, 2), x(2)),
    pb.case(ComputesAll, x(3, 4), x(4, 2), x(2)),
    pb.case(AnyNeeded, x(3, 4), x(4, 2), x(2)),
    pb.case(TrainsOnly, x(3, 4), x(4, 2), x(2)),
    pb.case(EagerGradientRight, x(3), x(3)),
    pb.case(AddsInPlace, x(3), x(3)),
    pb.case(SumAndIndex, x(3, 4), x(4).expand(3, 4).detach().requires_grad_()),
    pb.case(two_layers, x(3, 4), x(4, 2), x(2)),
]


class KeepsNormaliser(torch.autograd.Function):
    """A softmax with a bias: the sample's bias does not require grad."""

    @staticmethod
    def forward(ctx, scores, bias):
        z = scores + bias
        ctx.save_for_backward(z, z.logsumexp(-1, keepdim=True))
        return z.softmax(-1)

    @staticmethod
    def backward(ctx, dy):
        z, total = ctx.saved_tensors
        p = (z - total).exp()
        grad = p * (dy - (p * dy).sum(-1, keepdim=True))
        return grad, grad.sum(0)


class KeepsNormaliserForScores(KeepsNormaliser):
    @staticmethod
    def forward(ctx, scores, bias):
        z = scores + bias
        ctx.save_for_backward(z, z.logsumexp(-1, keepdim=True) if ctx.needs_input_grad[0] else z.new_empty(0))
        return z.softmax(-1)


kills.append(pb.case(KeepsNormaliserForScores, x(3, 4), x(4).detach()))
spares.append(pb.case(KeepsNormaliser, x(3, 4), x(4).detach()))


class OnlyInTraining(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if x.requires_grad or w.requires_grad:
            ctx.save_for_backward(x, w)
            return x * w
        return None

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class SavesOnlyInTraining(OnlyInTraining):
    @staticmethod
    def forward(ctx, x, w):
        if x.requires_grad or w.requires_grad:
            ctx.save_for_backward(x, w)
        return x * w


kills.append(pb.case(OnlyInTraining, x(3, 4), x(3, 4)))
spares.append(pb.case(SavesOnlyInTraining, x(3, 4), x(3, 4)))
