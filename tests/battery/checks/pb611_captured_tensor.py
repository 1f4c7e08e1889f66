"""Kills and spares of PB611."""

import torch

import pullback as pb

SLOPE = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
TABLE = torch.linspace(0, 1, 3, dtype=torch.float64)
GIVEN = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
LAYER = torch.nn.Linear(3, 3).double()
NESTED = {"weights": [torch.nn.Parameter(torch.ones(3, dtype=torch.float64))]}


class ReadsGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SLOPE

    @staticmethod
    def backward(ctx, dy):
        return dy * SLOPE


class ReadsNested(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * NESTED["weights"][0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy * NESTED["weights"][0]


class ReadsArgumentItself(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, v):
        ctx.save_for_backward(w)
        return w * v

    @staticmethod
    def backward(ctx, dy):
        (w,) = ctx.saved_tensors
        return dy * GIVEN, dy * w


class SavesGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(SLOPE)
        return x * 0.5

    @staticmethod
    def backward(ctx, dy):
        (slope,) = ctx.saved_tensors
        return dy * slope


class Runs(torch.autograd.Function):
    """Calls a function, and differentiates it in backward for its arguments."""

    @staticmethod
    def forward(ctx, f, x, *tensors):
        ctx.f = f
        ctx.save_for_backward(x, *tensors)
        return f(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, *tensors = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.f(x)
        wanted = [t for t, needed in zip([x, *tensors], ctx.needs_input_grad[1:], strict=True) if needed]
        found = iter(torch.autograd.grad(y, wanted, dy, allow_unused=True))
        return None, *(next(found) if needed else None for needed in ctx.needs_input_grad[1:])


def closure(w, x):
    return Runs.apply(lambda v: torch.sigmoid(v * w), x)


def closure_passed(w, x):
    return Runs.apply(lambda v: torch.sigmoid(v * w), x, w)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))

    def forward(self, x):
        return Times.apply(x, self.weight)


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum_to_size(w.shape)


class ReadsTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * TABLE

    @staticmethod
    def backward(ctx, dy):
        return dy * TABLE


class DetachesGlobal(torch.autograd.Function):
    """Says itself that it wants the parameter as a number."""

    @staticmethod
    def forward(ctx, x):
        return x * SLOPE.detach()

    @staticmethod
    def backward(ctx, dy):
        return dy * SLOPE.detach()


class ReadsShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.ones_like(SLOPE)

    @staticmethod
    def backward(ctx, dy):
        return dy + torch.zeros((), dtype=dy.dtype)


class Numpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.tensor([2.0], dtype=dy.dtype) * x


def plus(x, w):
    return x + w


class Helper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, cfg):
        ctx.n = cfg["n"]
        return plus(x, w) * ctx.n

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.n, dy * ctx.n, None


class Recomputes(torch.autograd.Function):
    """Recomputes a module in backward; its parameters get their gradients from the inner backward."""

    @staticmethod
    def forward(ctx, module, x):
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.module(x)
        torch.autograd.backward(y, dy)
        return None, x.grad


def x():
    return torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)


kills = [
    pb.case(ReadsGlobal, x()),
    pb.case(ReadsNested, x()),
    pb.case(ReadsArgumentItself, x(), GIVEN),
    pb.case(SavesGlobal, x()),
    pb.case(closure, x(), x()),
    pb.case(Runs, LAYER, x()),
    pb.case(ReadsTable, x()),
]
spares = [
    pb.case(closure_passed, x(), x()),
    pb.case(Scale(), x()),
    pb.case(lambda v: Times.apply(v, SLOPE) + LAYER(v).sum(), x()),
    pb.case(ReadsTable, x()),
    pb.case(DetachesGlobal, x()),
    pb.case(ReadsShape, x()),
    pb.case(Numpy, x()),
    pb.case(Helper, x(), x(), {"n": 3}),
    pb.case(Recomputes, LAYER, x()),
]
