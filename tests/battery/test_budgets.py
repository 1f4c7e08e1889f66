"""What a sweep may cost, and what is not swept at all."""

from dataclasses import replace

import torch

import pullback as pb
from pullback.battery.probe import Probe


class ByNumpy(torch.autograd.Function):
    """Its forward has no derivative that autograd could take."""

    rows = []

    @staticmethod
    def forward(ctx, x):
        ByNumpy.rows.append((len(x), x.dtype))
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


def sample():
    return torch.linspace(1, 2, 6, dtype=torch.float64).requires_grad_()


def test_a_sweep_over_a_later_searched_sample_takes_half_as_long():
    case = pb.case(ByNumpy, sample())
    searched = replace(case, origin="searched")
    assert [Probe(c).seconds(0.5) for c in (case, replace(case, index=1), searched, replace(searched, index=1))] == [0.5, 0.5, 0.5, 0.25]


def test_without_a_measuring_stick_nothing_is_run_in_low_precision():
    ByNumpy.rows.clear()
    (run,) = pb.check(ByNumpy, sample(), select=["PB504"]).checks
    assert run.reason.startswith("no measuring stick")
    assert set(ByNumpy.rows) == {(6, torch.float64)}
