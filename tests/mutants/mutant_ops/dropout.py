"""Random: a mask drawn from a seed that is an argument, drawn again in backward."""

import torch


def keep(x, p, seed):
    generator = torch.Generator(x.device).manual_seed(seed)
    return (torch.rand(x.shape, generator=generator, dtype=torch.float64, device=x.device) >= p).to(x.dtype)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return x * keep(x, p, seed) / (1 - p)

    @staticmethod
    def backward(ctx, dy):
        return dy * keep(dy, ctx.p, ctx.seed) / (1 - ctx.p), None, None


def inputs():
    return torch.randn(4, 8, dtype=torch.float64, requires_grad=True), 0.25, 17


FAULTS = [
    ("dropped factor", "constant-factor", "dy * keep(dy, ctx.p, ctx.seed) / (1 - ctx.p)", "dy * keep(dy, ctx.p, ctx.seed)"),
    ("another mask", None, "ctx.p, ctx.seed = (p, seed)", "ctx.p, ctx.seed = (p, seed + 1)"),
    ("inverted mask", None, "dy * keep(dy, ctx.p, ctx.seed)", "dy * (1 - keep(dy, ctx.p, ctx.seed))"),
    ("missing mask", None, "dy * keep(dy, ctx.p, ctx.seed)", "dy"),
    ("global generator", None, "keep(dy, ctx.p, ctx.seed)", "(torch.rand_like(dy) >= ctx.p)"),
    ("wrong probability", "constant-factor", "1 - ctx.p", "ctx.p"),
]
WRAPPED = ["sign", "strides ignored", "written grad_output", "stale gradient"]
