"""Two statistics and an integer output that carries no gradient."""

import torch


class Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        count = torch.tensor(x.shape[0], device=x.device)
        ctx.mark_non_differentiable(count)
        return x.mean(0), x.var(0, unbiased=False), count

    @staticmethod
    def backward(ctx, dmean, dvar, _):
        (x,) = ctx.saved_tensors
        n = x.shape[0]
        return dmean / n + dvar * 2 * (x - x.mean(0)) / n


def inputs():
    return (torch.randn(6, 4, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("wrong size", "constant-factor", "dvar * 2 * (x - x.mean(0)) / n", "dvar * 2 * (x - x.mean(0)) / (n - 1)"),
    ("ignored output", "output-ignored", "dmean / n + dvar * 2 * (x - x.mean(0)) / n", "(dmean / n).expand_as(x)"),
    ("ignored output", "output-ignored", "dmean / n + dvar * 2 * (x - x.mean(0)) / n", "dvar * 2 * (x - x.mean(0)) / n"),
    ("missing shift", None, "(x - x.mean(0))", "x"),
    ("dropped factor", "constant-factor", "dvar * 2", "dvar"),
    ("wrong size", "constant-factor", "dmean / n", "dmean"),
]
WRAPPED = ["partial rows", "strides ignored", "sign", "second backward", "inputs' strides ignored"]
