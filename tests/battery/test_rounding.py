"""What rounding alone does to a gradient is no fault, on any machine; what is wrong by more still is one."""

import pytest
import torch

import pullback as pb
from pullback.battery.other_rounding import OtherRounding

CODES = ["PB501", "PB502", "PB625"]
COLD = (0.5, 3e-11, 1e-12)


class SoftMinimum(torch.autograd.Function):
    """At a temperature of 1e-12 the exponent has four digits; nothing is wrong with the formula."""

    @staticmethod
    def forward(ctx, x, temperature):
        y = -temperature * torch.logsumexp(-x / temperature, -1)
        ctx.save_for_backward(x, y)
        ctx.temperature = temperature
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        return dy[..., None] * torch.exp((y[..., None] - x) / ctx.temperature), None


class Difference(torch.autograd.Function):
    """cosh(x) - 1 as a difference: its gradient keeps few digits of small x."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return (x * scale).cosh() / scale

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (((x * ctx.scale).exp() - 1) - ((-x * ctx.scale).exp() - 1)) / 2, None


class HalfAsCold(SoftMinimum):
    @staticmethod
    def backward(ctx, dy):
        grad_x, _ = SoftMinimum.backward(ctx, dy)
        return grad_x * (1.0 if ctx.temperature > 1e-3 else 0.5), None


def draw(shape, seed, shift=0.0):
    return (torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + shift).requires_grad_()


def loud(function, *arguments, seed=0):
    report = pb.check(function, arguments, select=CODES, seed=seed)
    return [str(f) for f in report.findings if f.severity != "note"]


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 40), marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("temperature", COLD)
def test_few_digits_are_no_fault(seeds, temperature):
    for seed in seeds:
        assert not loud(SoftMinimum, draw((3, 4), seed, 10.0), temperature, seed=seed), seed
        assert not loud(SoftMinimum, draw((5,), seed, 10.0), temperature, seed=seed), seed
        assert not loud(Difference, draw((6,), seed), temperature, seed=seed), seed


@pytest.mark.parametrize("seed", range(3))
def test_a_factor_that_is_wrong_there_is_one(seed):
    assert loud(HalfAsCold, draw((3, 4), seed, 10.0), 0.5, seed=seed)
    assert loud(HalfAsCold, draw((5,), seed, 10.0), 1e-6, seed=seed)


def test_results_are_rounded_otherwise_by_a_unit_and_equal_ones_alike():
    x = draw((64,), 0).detach()
    twice = torch.cat([x, x])
    with OtherRounding(1):
        got, copied, zeros = twice.exp(), twice.clone(), torch.zeros(3) * 2
    with OtherRounding(2):
        other = twice.exp()
    unit = 2.0**-52 * twice.exp().abs()
    assert 0 < ((got - twice.exp()).abs() / unit).max() <= 2
    assert torch.equal(got[:64], got[64:])
    assert not torch.equal(got, other)
    assert torch.equal(copied, twice)
    assert not zeros.any()
