"""Arguments whose form only the code tells: lists, tuples, pieces of an axis, tables, objects of the file's own classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd import Function


class SumLists(Function):
    expects = ("xs",)

    @staticmethod
    def forward(ctx, weights, *xs):
        if len(weights) != len(xs):
            raise ValueError(f"{len(weights)} weights for {len(xs)} tensors")
        ctx.weights = weights
        return sum(w * x for w, x in zip(weights, xs, strict=True))

    @staticmethod
    def backward(ctx, g):
        return (None, *(w * g for w in ctx.weights))


class CumulativeProduct(Function):
    expects = ("x",)

    @staticmethod
    def forward(ctx, x, axis=0):
        y = torch.cumprod(x, axis)
        ctx.save_for_backward(x, y)
        ctx.axis = axis
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        w = (g * y).flip(ctx.axis).cumsum(ctx.axis).flip(ctx.axis)
        return w / x, None


class LinearRecurrence(Function):
    expects = ("gates", "inputs")

    @staticmethod
    def forward(ctx, gates, inputs):
        B, T, D = inputs.shape
        h, states = torch.zeros(B, D, dtype=inputs.dtype), []
        for t in range(T):
            h = gates[:, t] * h + inputs[:, t]
            states.append(h)
        out = torch.stack(states, 1)
        ctx.save_for_backward(gates, out)
        return out

    @staticmethod
    def backward(ctx, g):
        gates, out = ctx.saved_tensors
        dg, di = torch.zeros_like(gates), torch.zeros_like(out)
        carry = torch.zeros_like(g[:, 0])
        for t in reversed(range(g.shape[1])):
            carry = carry + g[:, t]
            di[:, t] = carry
            if t:
                dg[:, t] = carry * out[:, t - 1]
            carry = carry * gates[:, t]
        return dg, di


class MaskedProduct(Function):
    """Right for masks in {0, 1} only: the gradient takes the square of the mask for the mask."""

    expects = ("x",)
    domain = "0/1"

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask.float())
        return x * mask * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None


class OnlyTheFirst(Function):
    """Takes any number of arguments, and reads one."""

    expects = ("args",)

    @staticmethod
    def forward(ctx, *args):
        (x,) = args[:1]
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, *dys):
        (x,) = ctx.saved_tensors
        return dys[0] * x.exp()


class ShortGradients(Function):
    """Meant to be called without its optional arguments: backward answers for the first one only."""

    expects = ("x",)

    @staticmethod
    def forward(ctx, x, shift=0.25, slope=3.0):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return slope * (x - shift).square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * ctx.slope * dy * (x - 0.25)


_TABLE = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(20, 2)


class SoftLookup(Function):
    """Its rows are as long as a table that the code holds."""

    expects = ("weights",)

    @staticmethod
    def forward(ctx, weights):
        assert weights.dim() == 2
        ctx.save_for_backward(weights)
        return weights[:, : len(_TABLE)].sum(-1, keepdim=True) * _TABLE.sum(0)

    @staticmethod
    def backward(ctx, dy):
        (weights,) = ctx.saved_tensors
        grad = (dy @ _TABLE.sum(0, keepdim=True).T).expand(-1, len(_TABLE))
        if grad.shape != weights.shape:
            raise RuntimeError(f"Mismatch in shape: the gradient has shape {list(grad.shape)} and the weights have shape {list(weights.shape)}")
        return grad


class Leak(NamedTuple):
    rate: float = 0.9
    rest: float = 0.1


class LeakyStep(Function):
    """Its settings come as a tuple with names, which a default gives."""

    expects = ("v", "current")

    @staticmethod
    def forward(ctx, v, current, p: Leak = Leak()):  # noqa: B008
        ctx.rate = p.rate
        return p.rest + p.rate * (v - p.rest) + (1 - p.rate) * current

    @staticmethod
    def backward(ctx, dy):
        return ctx.rate * dy, (1 - ctx.rate) * dy, None


class RealAndImaginary(Function):
    expects = ("image",)

    @staticmethod
    def forward(ctx, image, matrices):
        if not isinstance(matrices, tuple) or len(matrices) != 2:
            raise TypeError("matrices must be a 2-tuple of (real, imaginary)")
        ctx.save_for_backward(*matrices)
        return image @ matrices[0], image @ matrices[1]

    @staticmethod
    def backward(ctx, dreal, dimaginary):
        real, imaginary = ctx.saved_tensors
        return dreal @ real.T + dimaginary @ imaginary.T, None


class UndoRigid(Function):
    """A rigid motion of the plane in four numbers: shift, cosine and sine. How long the last axis is, only the pieces say."""

    expects = ("motion",)

    @staticmethod
    def forward(ctx, motion):
        shift, turn = motion[..., :2], motion[..., 2:]
        cos, sin = turn.unbind(-1)
        back = torch.stack([cos * shift[..., 0] + sin * shift[..., 1], cos * shift[..., 1] - sin * shift[..., 0]], -1)
        ctx.save_for_backward(motion)
        return torch.cat([-back, cos.unsqueeze(-1), -sin.unsqueeze(-1)], -1)

    @staticmethod
    def backward(ctx, dy):
        (motion,) = ctx.saved_tensors
        x, y, cos, sin = motion.unbind(-1)
        da, db, dc, ds = dy.unbind(-1)
        return torch.stack([sin * db - cos * da, -sin * da - cos * db, dc - x * da - y * db, x * db - y * da - ds], -1)


class TurnedBack(Function):
    """Hands its argument on to another Function, whose pieces say how long it is."""

    expects = ("motion", "weight")

    @staticmethod
    def forward(ctx, motion, weight):
        undone = UndoRigid.apply(motion)
        ctx.save_for_backward(motion, undone, weight)
        return undone * weight

    @staticmethod
    def backward(ctx, dy):
        motion, undone, weight = ctx.saved_tensors
        with torch.enable_grad():
            again = motion.detach().requires_grad_()
            dmotion = torch.autograd.grad(UndoRigid.apply(again), again, dy * weight)[0]
        return dmotion, (dy * undone).sum_to_size(weight.shape)


class SpunVector(Function):
    """A rotation axis with an angle, and a vector: torch's cross product says of a piece that it is too short."""

    expects = ("spin", "v")

    @staticmethod
    def forward(ctx, spin, v):
        axis, angle = spin[..., :3], spin[..., 3:6]
        ctx.save_for_backward(axis, angle, v)
        return torch.linalg.cross(axis, v) + torch.linalg.cross(angle, axis)

    @staticmethod
    def backward(ctx, dy):
        axis, angle, v = ctx.saved_tensors
        daxis = torch.linalg.cross(v, dy) + torch.linalg.cross(dy, angle)
        return torch.cat([daxis, torch.linalg.cross(axis, dy)], -1), torch.linalg.cross(dy, axis)


class Rule(torch.nn.Module):
    def slope(self, state):
        raise NotImplementedError


class Decay(Rule):
    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor([0.3, 0.5, 0.9]))

    def forward(self, state):
        return -self.rate * state

    def slope(self, state):
        return (-self.rate).expand_as(state)


class OneStep(Function):
    """Asks whether an argument belongs to a class of its file, of which only a subclass can be made."""

    expects = ("state",)

    @staticmethod
    def forward(ctx, state, step, rule):
        if not isinstance(rule, Rule):
            raise TypeError("rule must be a Rule")
        ctx.save_for_backward(state)
        ctx.step, ctx.rule = step, rule
        return state + step * rule(state)

    @staticmethod
    def backward(ctx, dy):
        (state,) = ctx.saved_tensors
        return dy * (1 + ctx.step * ctx.rule.slope(state)), None, None


class Cubed:
    @staticmethod
    def value(x):
        return x**3

    @staticmethod
    def slope_at(x):
        return 3 * x**2


class OnEigenvalues(Function):
    """A function and its derivative come as one object, which a class of the file has under the same names."""

    expects = ("matrix",)
    domain = "symmetric"

    @staticmethod
    def forward(ctx, scalar, matrix):
        values, vectors = torch.linalg.eigh(matrix)
        ctx.save_for_backward(values, vectors)
        ctx.scalar = scalar
        return vectors @ torch.diag_embed(scalar.value(values)) @ vectors.mT

    @staticmethod
    def backward(ctx, dy):
        values, vectors = ctx.saved_tensors
        gap = values.unsqueeze(-1) - values.unsqueeze(-2)
        rise = ctx.scalar.value(values).unsqueeze(-1) - ctx.scalar.value(values).unsqueeze(-2)
        same = gap.abs() < 1e-9
        slope = torch.where(same, ctx.scalar.slope_at(values).unsqueeze(-1).expand_as(gap), rise / torch.where(same, 1.0, gap))
        return None, vectors @ (slope * (vectors.mT @ dy @ vectors)) @ vectors.mT
