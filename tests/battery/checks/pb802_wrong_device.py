"""Kills and spares of PB802."""

import torch

import pullback as pb

settings = {"device": "cuda"}


class CountsOnTheCpu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.arange(1.0, len(x) + 1)

    @staticmethod
    def backward(ctx, dy):
        return dy * torch.arange(1.0, len(dy) + 1)


class MasksOnTheCpu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.positive = (x > 0).cpu()
        return x.relu()

    @staticmethod
    def backward(ctx, dy):
        return torch.where(ctx.positive, dy, torch.zeros(dy.shape, dtype=dy.dtype))


class HalfTheGradientOnCuda(torch.autograd.Function):
    """Has a branch for CUDA, which forgets a factor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x if dy.is_cuda else 2 * dy * x


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.arange(1, len(x) + 1, device=x.device)

    @staticmethod
    def backward(ctx, dy):
        return dy * torch.arange(1, len(dy) + 1, device=dy.device)


class ThroughNumpy(torch.autograd.Function):
    """Goes to the CPU and comes back."""

    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(2 * x.detach().cpu().numpy()).to(x.device)

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(CountsOnTheCpu, x(4)), pb.case(MasksOnTheCpu, x(4)), pb.case(HalfTheGradientOnCuda, x(4))]
spares = [pb.case(Counts, x(4)), pb.case(ThroughNumpy, x(4))]
