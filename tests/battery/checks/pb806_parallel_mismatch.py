"""Kills and spares of PB806."""

import torch
import torch.distributed as dist

import pullback as pb

settings = {"distributed": 2}


def summed(x):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def gathered(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return parts


class CentresByAll(torch.autograd.Function):
    """Subtracts the mean over the rows of all processes."""

    @staticmethod
    def forward(ctx, x):
        rows = x.shape[0] * dist.get_world_size()
        ctx.rows = rows
        return x - summed(x.sum(0)) / rows

    @staticmethod
    def backward(ctx, dy):
        return dy - summed(dy.sum(0)) / ctx.rows


class CentresByOwn(CentresByAll):
    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0)


class NormByAll(torch.autograd.Function):
    """Divides by the root mean square of the columns of all processes, times a weight whose gradient is summed over all."""

    @staticmethod
    def forward(ctx, x, weight, group=None):
        rows = x.shape[0] * dist.get_world_size()
        rms = (summed((x * x).sum(0)) / rows).sqrt()
        ctx.save_for_backward(x, weight, rms)
        ctx.rows = rows
        return x / rms * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, rms = ctx.saved_tensors
        g = dy * weight
        inner = summed((g * x).sum(0))
        return g / rms - x * inner / (ctx.rows * rms**3), summed((dy * x / rms).sum(0)), None


class NormForgetsToSum(NormByAll):
    @staticmethod
    def backward(ctx, dy):
        x, weight, rms = ctx.saved_tensors
        g = dy * weight
        inner = (g * x).sum(0) * dist.get_world_size()
        return g / rms - x * inner / (ctx.rows * rms**3), (dy * x / rms).sum(0), None


class NormAverages(NormByAll):
    """Leaves the mean over processes in the weight's gradient, as averaging afterwards would."""

    @staticmethod
    def backward(ctx, dy):
        dx, dw, _ = NormByAll.backward(ctx, dy)
        return dx, dw / dist.get_world_size(), None


class Gather(torch.autograd.Function):
    """All blocks in one; the loss of the whole counts once."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat(gathered(x))

    @staticmethod
    def backward(ctx, dy):
        return dy.chunk(dist.get_world_size())[dist.get_rank()].clone()


class GatherAndReduceScatter(Gather):
    @staticmethod
    def backward(ctx, dy):
        return summed(dy).chunk(dist.get_world_size())[dist.get_rank()].clone()


class GatherTakesTheFirst(Gather):
    @staticmethod
    def backward(ctx, dy):
        return dy.chunk(dist.get_world_size())[0].clone()


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed(x).chunk(dist.get_world_size())[dist.get_rank()].clone()

    @staticmethod
    def backward(ctx, dy):
        return torch.cat(gathered(dy))


class ReduceScatterFillsWithZeros(ReduceScatter):
    @staticmethod
    def backward(ctx, dy):
        parts = [torch.zeros_like(dy) for _ in range(dist.get_world_size())]
        parts[dist.get_rank()] = dy
        return torch.cat(parts)


class Copy(torch.autograd.Function):
    """The same input in all processes, each of which uses it its own way."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return summed(dy)


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, dy):
        return dy.clone()


class ReduceBoth(Reduce):
    @staticmethod
    def backward(ctx, dy):
        return summed(dy)


class MeanThatForgetsToDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return summed(x) / dist.get_world_size()

    @staticmethod
    def backward(ctx, dy):
        return summed(dy) * dist.get_world_size()


class Alone(torch.autograd.Function):
    """Talks to nobody."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x.relu() * n, x.argmax()

    @staticmethod
    def backward(ctx, dy, _):
        (x,) = ctx.saved_tensors
        return dy * (x > 0) * ctx.n, None


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(CentresByOwn, x(4, 3)),
    pb.case(NormForgetsToSum, x(4, 3), x(3)),
    pb.case(GatherTakesTheFirst, x(4)),
    pb.case(ReduceScatterFillsWithZeros, x(4, 2)),
    pb.case(MeanThatForgetsToDivide, x(3)),
]
spares = [
    pb.case(CentresByAll, x(4, 3)),
    pb.case(NormByAll, x(4, 3), x(3)),
    pb.case(NormAverages, x(4, 3), x(3)),
    pb.case(Gather, x(4)),
    pb.case(GatherAndReduceScatter, x(4)),
    pb.case(ReduceScatter, x(4, 2)),
    pb.case(Copy, x(3)),
    pb.case(Reduce, x(3)),
    pb.case(ReduceBoth, x(3)),
    pb.case(Alone, x(3), 2),
]
