"""Difference quotients at entries that lie exactly on a step of the forward, as values of few digits often do."""

import pytest
import torch

from pullback.battery.numeric import slopes

X = torch.tensor([0.5, 1.0, -0.25, 0.125], dtype=torch.float64)
DIRECTION = torch.tensor([1.0, -0.75, 0.5, 0.875], dtype=torch.float64)


def measured(forward):
    def evaluate(values):
        return forward((values or {"x": X})["x"])

    return slopes(evaluate, "x", X, DIRECTION, evaluate(None))


@pytest.mark.parametrize("height", [1.0, 1e-2, 1e-5])
def test_a_jump_has_no_slope_however_low_it_is(height):
    found = measured(lambda x: x.square() + height * (x >= 0.5))
    assert found.measured.tolist() == [False, True, True, True]
    assert torch.allclose(found.low[2:], (2 * X * DIRECTION)[2:])


def test_a_kink_keeps_its_two_slopes():
    found = measured(lambda x: (x - 0.5).abs())
    assert bool(found.measured.all())
    assert (found.low[0].item(), found.high[0].item()) == pytest.approx((-1.0, 1.0))


def test_a_cusp_is_still_measured():
    assert bool(measured(lambda x: (x - 0.5).abs().sqrt()).measured.all())
