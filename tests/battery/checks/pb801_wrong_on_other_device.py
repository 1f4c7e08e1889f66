"""Kills and spares of PB801."""

import torch

import pullback as pb


class Weights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.arange(x.shape[-1], dtype=x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy * torch.arange(dy.shape[-1], dtype=dy.dtype)


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x[..., :n] * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape, ctx.n = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx, dy):
        dx = torch.zeros(ctx.shape, dtype=dy.dtype)
        dx[..., : ctx.n] = 2 * dy
        return dx, None


class FreshOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros(x.shape, dtype=x.dtype)
        y[:] = 3 * x
        return y, x.sum()

    @staticmethod
    def backward(ctx, dy, ds):
        return 3 * dy + ds


class OnDevice(Weights):
    @staticmethod
    def forward(ctx, x):
        return x * torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx, dy):
        return dy * torch.arange(dy.shape[-1], dtype=dy.dtype, device=dy.device)


class Constant(torch.autograd.Function):
    """A number as a tensor may stay on the CPU."""

    @staticmethod
    def forward(ctx, x):
        return x * torch.tensor(2.0, dtype=x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class Numpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(x.detach().numpy() * 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy * 2


class Pointer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.address = x.data_ptr()
        return x * float(x.sum().item())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return dy * 0


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(Weights, x(3, 4)), pb.case(InBackward, x(3, 4), 2), pb.case(FreshOutput, x(3)), pb.case(lambda t: Weights.apply(t).sum(), x(3))]
spares = [
    pb.case(OnDevice, x(3, 4)),
    pb.case(Constant, x(3)),
    pb.case(Numpy, x(3)),
    pb.case(Pointer, x(3)).declare(exact=False, reason="refuses to run without memory"),
]
