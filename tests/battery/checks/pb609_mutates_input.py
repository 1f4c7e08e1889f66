"""Kills and spares of PB609."""

import torch
from torch.autograd.function import once_differentiable

import pullback as pb


class AddsUnmarked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x += y
        return x * 1

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class AddsAndReturnsUnmarked(AddsUnmarked):
    @staticmethod
    def forward(ctx, x, y):
        x.data.add_(y)
        return x


class AddsMarked(AddsUnmarked):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)


class ClampsThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(x, low):
        memory = x.detach().numpy()
        memory[memory < low] = low
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.low = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * dy * (x > ctx.low), None


class StoresGradientInInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        grad_x, grad_w = dy * w, dy * x
        x.detach().numpy()[:] = grad_x.numpy()
        return x, grad_w


class SortsIndexInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = len(x)
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.rows).index_add_(0, index.clone(), dy)
        index.copy_(index.sort().values)
        return grad, None


class Multiplies(StoresGradientInInput):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x


class UpdatesMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, running_mean, momentum):
        mean = x.mean(0)
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        return x - mean

    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0), None, None


class WorksOnCopy(AddsUnmarked):
    @staticmethod
    def forward(ctx, x, y):
        x = x.clone()
        x += y
        return x


class AccumulatesMainGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        if hasattr(w, "main_grad"):
            w.main_grad.add_(x.t() @ dy)
        return dy @ w.t(), x.t() @ dy


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def with_main_grad(w):
    w.main_grad = torch.zeros_like(w)
    return w


def relu_in_place(a):
    return a.mul_(2).relu_()


kills = [
    pb.case(AddsUnmarked, x(3), x(3)),
    pb.case(AddsAndReturnsUnmarked, x(3), x(3)),
    pb.case(ClampsThroughNumpy, x(5), 0.0),
    pb.case(StoresGradientInInput, x(3), x(3)),
    pb.case(SortsIndexInBackward, x(4), torch.tensor([3, 0, 2])),
]
spares = [
    pb.case(AddsMarked, x(3), x(3)),
    pb.case(Multiplies, x(3), x(3)),
    pb.case(UpdatesMean, x(4, 3), torch.zeros(3, dtype=torch.float64), 0.1),
    pb.case(WorksOnCopy, x(3), x(3)),
    pb.case(AccumulatesMainGrad, x(3, 4), with_main_grad(x(4, 2))),
    pb.case(relu_in_place, x(3)),
]


class AddsAnAxis(torch.autograd.Function):
    """The window of the caller has two axes from then on."""

    @staticmethod
    def forward(ctx, x, window):
        if window.dim() == 1:
            window.unsqueeze_(0)
        ctx.save_for_backward(window)
        return x * window

    @staticmethod
    def backward(ctx, dy):
        (window,) = ctx.saved_tensors
        return dy * window, None


class ViewsWithAnAxis(AddsAnAxis):
    @staticmethod
    def forward(ctx, x, window):
        window = window.unsqueeze(0) if window.dim() == 1 else window
        ctx.save_for_backward(window)
        return x * window


kills.append(pb.case(AddsAnAxis, x(2, 5), torch.linspace(0.5, 1, 5, dtype=torch.float64)))
spares.append(pb.case(ViewsWithAnAxis, x(2, 5), torch.linspace(0.5, 1, 5, dtype=torch.float64)))
