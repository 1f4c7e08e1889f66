"""Kills and spares of PB615."""

import random

import numpy
import torch

import pullback as pb


class SetsSeed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        torch.manual_seed(3)
        ctx.save_for_backward(torch.rand_like(x))
        return x * ctx.to_save[0]

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class SetsNumpySeed(torch.autograd.Function):
    @staticmethod
    def forward(x, p):
        numpy.random.seed(1)
        mask = torch.from_numpy(numpy.random.rand(*x.shape) > p)
        return x * mask, mask

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, dy, _):
        return dy * ctx.saved_tensors[0], None


class RestoresInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.state = torch.get_rng_state()
        return x * torch.rand_like(x)

    @staticmethod
    def backward(ctx, dy):
        torch.set_rng_state(ctx.state)
        return dy * torch.rand_like(dy)


class Redraws(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        ctx.p = p
        return x * (torch.rand_like(x) > p)

    @staticmethod
    def backward(ctx, dy):
        return dy * (torch.rand_like(dy) > ctx.p), None


class RedrawsPython(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * random.random()

    @staticmethod
    def backward(ctx, dy):
        return dy * random.random()


class Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p):
        mask = torch.rand_like(x) > p
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


class Forks(RestoresInBackward):
    @staticmethod
    def backward(ctx, dy):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            return dy * torch.rand_like(dy)


class OwnGenerator(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed):
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.device) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


class StochasticRounding(torch.autograd.Function):
    """Rounds at random both ways, by design."""

    __pullback__ = {"exact": False, "linear": False, "reason": "stochastic rounding of values and gradients"}

    @staticmethod
    def forward(ctx, x):
        return (x + torch.rand_like(x)).floor()

    @staticmethod
    def backward(ctx, dy):
        return (dy * 256 + torch.rand_like(dy)).floor() / 256


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(SetsSeed, x(4)),
    pb.case(SetsNumpySeed, x(3, 4), 0.5),
    pb.case(RestoresInBackward, x(4)),
    pb.case(Redraws, x(30), 0.5),
    pb.case(RedrawsPython, x(4)),
    pb.case(lambda t: Redraws.apply(t * 2, 0.5) + 1, x(30)),
]
spares = [pb.case(Mask, x(30), 0.5), pb.case(Forks, x(30)), pb.case(OwnGenerator, x(30), 4), pb.case(StochasticRounding, x(30))]
