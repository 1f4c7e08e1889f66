"""Kills and spares of PB612."""

import dataclasses

import torch

import pullback as pb


class OnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.x.cos()


class InDict(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.kept = {"slope": torch.tanh(x * w)}
        ctx.save_for_backward(x, w)
        return torch.tanh(x * w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        inner = dy * (1 - ctx.kept["slope"] ** 2)
        return inner * w, inner * x


class InClosure(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        e = x.exp()
        ctx.pull = lambda dy: dy * e
        return e + 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return ctx.pull(dy)


class InSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.pair = inputs

    @staticmethod
    def backward(ctx, dy):
        x, n = ctx.pair
        return dy * n * x ** (n - 1), None


@dataclasses.dataclass
class Holder:
    factor: torch.Tensor


class InObject(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.holder = Holder(x.cos())
        return x.sin(), x.size(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, _):
        return dy * ctx.holder.factor


class Saves(OnCtx):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.shape, ctx.name = x.shape, "sin"
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.cos()


class Noise(torch.autograd.Function):
    """Keeps a random state to draw the same mask again."""

    @staticmethod
    def forward(ctx, x):
        ctx.state = torch.get_rng_state()
        return x * (torch.rand_like(x) > 0.5)

    @staticmethod
    def backward(ctx, dy):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            return dy * (torch.rand_like(dy) > 0.5)


class Rows(torch.autograd.Function):
    """Keeps an index and the scale of a table."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.index, ctx.rows = index, x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, dy):
        return torch.zeros(ctx.rows, *dy.shape[1:], dtype=dy.dtype).index_add(0, ctx.index, dy), None


class Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, basis):
        ctx.basis = basis
        return x @ basis

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.basis.t(), None


class WithCache(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cache):
        ctx.cache = cache
        return cache.matrix @ x

    @staticmethod
    def backward(ctx, dy):
        return ctx.cache.matrix.t() @ dy, None


class Cache:
    def __init__(self, matrix):
        self.matrix = matrix


class MainGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.main_grad = w.main_grad
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dw = x.t() @ dy
        ctx.main_grad += dw.detach()
        return dy @ w.t(), dw


def x(*shape, grad=True):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)


def with_main_grad():
    w = x(4, 2)
    w.main_grad = torch.zeros(4, 2, dtype=torch.float64)
    return w


kills = [
    pb.case(OnCtx, x(3, 4)),
    pb.case(InDict, x(5), x(5)),
    pb.case(InClosure, x(3)),
    pb.case(InSetup, x(3), 2),
    pb.case(InObject, x(3, 2)),
    pb.case(lambda t: OnCtx.apply(t * 2) + 1, x(3)),
]
spares = [
    pb.case(Saves, x(3, 4)),
    pb.case(Noise, x(20)),
    pb.case(Rows, x(5, 2), torch.tensor([1, 3, 3])),
    pb.case(Frozen, x(3, 4), x(4, 2, grad=False)),
    pb.case(WithCache, x(3), Cache(x(3, 3, grad=False))),
    pb.case(MainGrad, x(3, 4), with_main_grad()),
]


class Detached(Saves):
    """No graph is kept, and still nothing notices when x is changed before backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.x.cos()


kills.append(pb.case(Detached, x(3, 4)))


class GathersIntoPool(torch.autograd.Function):
    """A view of a pool that every call writes hangs on ctx; torch tells nobody of its graph."""

    POOL = torch.empty(64, dtype=torch.float64)

    @staticmethod
    def forward(ctx, x, w):
        ctx.rows = GathersIntoPool.POOL[: x.numel()].view(x.shape).copy_(x)
        ctx.squares = x * x
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0)


kills.append(pb.case(GathersIntoPool, torch.randn(3, 4, dtype=torch.float64).requires_grad_(), torch.randn(4, dtype=torch.float64).requires_grad_()))
