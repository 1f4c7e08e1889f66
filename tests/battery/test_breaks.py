"""When a gradient that turns wrong at another number is no fault: forward breaks there, or rounding takes over. And when it is one."""

import pytest
import torch

import pullback as pb
from pullback.battery.breaks import breaks_on_the_way
from pullback.battery.probe import Probe


class Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, number):
        ctx.save_for_backward(x)
        ctx.number = number
        return x * number

    @staticmethod
    def backward(ctx, dy):
        return dy * abs(ctx.number), None


class IgnoresTheNumber(Scales):
    """Right at 1, and worse and worse from there on."""

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class Inverse(Scales):
    """Forward has a pole at 0; what backward says on its other side was never asked."""

    @staticmethod
    def forward(ctx, x, number):
        return Scales.forward(ctx, x, 1 / number)


class Leaks(Scales):
    """Forward compares the number with the entries: it jumps where it passes one, and each side counts."""

    @staticmethod
    def forward(ctx, x, number):
        ctx.save_for_backward(x)
        return torch.where(x > number, x, 0.1 * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, dy, 0.1 * dy), None


class LosesDigits(Scales):
    """A third of the number, by way of one that grows until nothing of the third is left beside it."""

    @staticmethod
    def forward(ctx, x, number):
        ctx.number = number
        return x * (number / 3)

    @staticmethod
    def backward(ctx, dy):
        large = 10.0**ctx.number
        return dy * ((large + ctx.number / 3) - large), None


@pytest.mark.parametrize(
    ("function", "start", "end", "excused"),
    [
        (Scales, 1.0, -1.0, False),
        (IgnoresTheNumber, 1.0, 10.0, False),
        (Leaks, 0.0, 1.0, False),
        (Inverse, 1.0, -1.0, True),
        (LosesDigits, 1.6, 14.2, True),
    ],
)
def test_only_breaks_and_rounding_excuse(function, start, end, excused):
    x = torch.tensor([0.5, -0.25, 0.75, -2.0], dtype=torch.float64, requires_grad=True)
    base = Probe(pb.case(function, x, start)).exact
    assert breaks_on_the_way(base, base.variant({"number": end}), "number", "x", 0) is excused
