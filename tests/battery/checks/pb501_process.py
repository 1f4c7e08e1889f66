"""Kills and spares of PB501 with members of enumerations, flags of objects, and how the process is set."""

import enum
import os

import torch

import pullback as pb


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()


kills = []
spares = []


class Gate(enum.Enum):
    TANH = "tanh"
    SIGMOID = "sigmoid"


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, up, gate):
        ctx.gate = gate
        y = x.tanh() if gate is Gate.TANH else x.sigmoid()
        ctx.save_for_backward(y, up)
        return y * up

    @staticmethod
    def backward(ctx, dy):
        y, up = ctx.saved_tensors
        slope = 1 - y * y if ctx.gate is Gate.TANH else y * (1 - y)
        return dy * up * slope, dy * y, None


class GatedAsTanh(Gated):
    @staticmethod
    def backward(ctx, dy):
        y, up = ctx.saved_tensors
        return dy * up * (1 - y * y), dy * y, None


kills.append(pb.case(GatedAsTanh, x(3, 4), x(3, 4), Gate.TANH))
spares.append(pb.case(Gated, x(3, 4), x(3, 4), Gate.TANH))


class Centre(torch.nn.Module):
    """Takes off the mean of the batch, or the one it was made with."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.full((3,), 0.25, dtype=torch.float64))


class Centred(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, centre):
        ctx.training = centre.training
        return x - (x.mean(0) if centre.training else centre.mean)

    @staticmethod
    def backward(ctx, dy):
        return (dy - dy.mean(0) if ctx.training else dy), None


class CentredAsInTraining(Centred):
    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(0), None


kills.append(pb.case(CentredAsInTraining, x(4, 3), Centre()))
spares.append(pb.case(Centred, x(4, 3), Centre()))


class Config:
    """Flags as attributes; only one of them is asked for."""

    def __init__(self):
        self.squared, self.verbose = False, False


class Length(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        total = x.square().sum(-1)
        y = total if config.squared else total.sqrt()
        ctx.config = config
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * (2 * x if ctx.config.squared else x / y[..., None]), None


class LengthForgetsSquare(Length):
    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * x / y[..., None], None


kills.append(pb.case(LengthForgetsSquare, x(3, 4), Config()))
spares.append(pb.case(Length, x(3, 4), Config()))


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.rows = table.shape[0]
        ctx.save_for_backward(ids)
        return table[ids]

    @staticmethod
    def backward(ctx, dy):
        (ids,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.rows, dy.shape[1])
        if torch.are_deterministic_algorithms_enabled():
            return grad.index_put((ids,), dy, accumulate=True), None
        return grad.index_add(0, ids, dy), None


class LookupOverwrites(Lookup):
    @staticmethod
    def backward(ctx, dy):
        (ids,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.rows, dy.shape[1])
        if torch.are_deterministic_algorithms_enabled():
            return grad.index_put((ids,), dy), None
        return grad.index_add(0, ids, dy), None


kills.append(pb.case(LookupOverwrites, x(4, 3), torch.tensor([0, 2, 2])))
spares.append(pb.case(Lookup, x(4, 3), torch.tensor([0, 2, 2])))


class ByThreads(torch.autograd.Function):
    """Partial sums, one a thread."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return dy * weight, torch.stack([part.sum(0) for part in (dy * x).tensor_split(torch.get_num_threads())]).sum(0)


class ByThreadsWithoutRest(ByThreads):
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        part = max(1, len(x) // torch.get_num_threads())
        return dy * weight, sum((dy * x)[i * part : (i + 1) * part].sum(0) for i in range(torch.get_num_threads()))


kills.append(pb.case(ByThreadsWithoutRest, x(6, 3), x(3)))
spares.append(pb.case(ByThreads, x(6, 3), x(3)))


class ByVariable(torch.autograd.Function):
    """A faster backward that a variable of the environment asks for."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp() * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        if os.environ.get("SHORT_BACKWARD") == "1":
            return dy * x.exp() * (1 + x)
        return dy * (x.exp() + x * x.exp())


class ByVariableDropsTerm(ByVariable):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        if os.environ.get("SHORT_BACKWARD") == "1":
            return dy * x.exp() * x
        return dy * (x.exp() + x * x.exp())


kills.append(pb.case(ByVariableDropsTerm, x(4)))
spares.append(pb.case(ByVariable, x(4)))
