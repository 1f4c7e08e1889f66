"""A size that would take too much memory is predicted, and never tried."""

import pytest
import torch

import pullback as pb
from pullback.battery.growth import BEARABLE, Growth
from pullback.battery.probe import Probe
from pullback.battery.size_sweep import Sweep
from pullback.battery.sizes import Resizer, symbols

seen = []


def pairs_of_pairs(x):
    """The mean of all products of four entries, by all of them: n⁴ numbers on the way."""
    seen.append(x.shape[0])
    pairs = (x[:, None] * x).reshape(-1)
    return x * (pairs[:, None] * pairs).mean()


class ByMean(torch.autograd.Function):
    """The same in n numbers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.mean() ** 4

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.mean() ** 4 + (dy * x).sum() * 4 * x.mean() ** 3 / x.numel()


class Direct(torch.autograd.Function):
    """As wasteful as the reference."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return pairs_of_pairs(x)

    @staticmethod
    def backward(ctx, dy):
        return ByMean.backward(ctx, dy)


def five():
    return torch.linspace(0.5, 1.5, 5, dtype=torch.float64, requires_grad=True)


def growth_of(function, **options):
    call = Probe(pb.case(function, five())).exact
    (symbol,) = symbols(call)
    tried = []

    def passes(size):
        tried.append(size)
        evaluator = Resizer(call).resized(symbol, size)
        return [] if evaluator is None else [evaluator]

    return Growth(passes, **options), tried


def test_a_size_beyond_what_is_bearable_is_not_run():
    growth, tried = growth_of(pairs_of_pairs, limit=BEARABLE // 16)
    assert growth.bears(17)
    assert tried == []
    assert growth.bears(33)
    assert not growth.bears(67)
    assert not growth.bears(1025)
    assert max(tried) == 32


def test_what_grows_with_its_input_is_measured_at_small_sizes_only():
    growth, tried = growth_of(ByMean)
    assert growth.bears(1025)
    assert tried == [8, 16]
    assert growth.bears(65_538)
    assert max(tried) <= 256


def test_a_limit_between_two_sizes():
    growth, _ = growth_of(ByMean, limit=10_000)
    assert growth.bears(129)
    assert not growth.bears(65_538)


def test_sizes_that_are_refused_stop_nothing():
    assert Growth(lambda size: []).bears(65_538)


@pytest.mark.slow
def test_the_size_sweep_ends_before_memory_does():
    seen.clear()
    probe = Probe(pb.case(Direct, five()))
    assert list(Sweep(probe, 60.0, ("x",)).run()) == []
    assert 67 in seen
    assert max(seen) < 129


def test_a_check_runs_a_wasteful_reference_at_sizes_that_fit_only():
    seen.clear()
    report = pb.check(ByMean, five(), reference=pairs_of_pairs, select=["PB511"])
    assert report.ok, report
    assert max(seen) < 129
