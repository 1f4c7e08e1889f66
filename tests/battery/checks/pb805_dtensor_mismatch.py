"""Kills and spares of PB805."""

import torch
from torch.distributed.tensor import DTensor

import pullback as pb

settings = {"distributed": 2}


def local(x):
    return x.to_local() if isinstance(x, DTensor) else x


def placed(value, like):
    return DTensor.from_local(value, like.device_mesh, like.placements) if isinstance(like, DTensor) else value


class CentresShard(torch.autograd.Function):
    """Subtracts the mean of whatever lies in this process."""

    @staticmethod
    def forward(ctx, x):
        own = local(x)
        return placed(own - own.mean(0), x)

    @staticmethod
    def backward(ctx, dy):
        own = local(dy)
        return placed(own - own.mean(0), dy)


class BackwardOfShard(torch.autograd.Function):
    """Forward is right; backward takes the mean of the shard."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        y = (x - x.mean(0)) * scale
        return y.redistribute(x.device_mesh, x.placements) if isinstance(y, DTensor) else y

    @staticmethod
    def backward(ctx, dy):
        own = local(dy) * ctx.scale
        return placed(own - own.mean(0), dy), None


class Centres(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x - x.mean(0)

    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0)


class Pair(torch.autograd.Function):
    """Two outputs; what torch hands over for the one that is not used is no DTensor."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w, x.exp()

    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        return dy * w + dz * x.exp(), dy * x


class Matmul(torch.autograd.Function):
    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


class Numpy(torch.autograd.Function):
    """Cannot take DTensors, and says so."""

    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(2 * x.detach().numpy())

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class Local(torch.autograd.Function):
    """Works on the shard, and returns it as what it is."""

    @staticmethod
    def forward(ctx, x):
        return local(x) * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


kills = [pb.case(CentresShard, x(4, 3)), pb.case(BackwardOfShard, x(4, 3), 0.5), pb.case(Pair, x(4, 3), x(4, 3))]
spares = [
    pb.case(Centres, x(4, 3)),
    pb.case(Centres, x(5)),
    pb.case(Pair, x(4, 3), x(4, 3)),
    pb.case(Matmul, x(4, 3), x(3, 2)),
    pb.case(Numpy, x(3)),
    pb.case(Local, x(4)),
]
