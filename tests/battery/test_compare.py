"""Gradients are compared on the scale that they usually have."""

import math

import torch

from pullback.battery.compare import gap_between, largest_gap


def test_equal_up_to_rounding_is_no_gap():
    a = torch.randn(5, dtype=torch.float64)
    assert gap_between("x", a + 1e-12, a) is None
    assert gap_between("x", a + 1e-3, a) is not None


def test_none_counts_as_zeros():
    a = torch.ones(3, dtype=torch.float64)
    assert gap_between("x", None, None) is None
    assert gap_between("x", None, 0 * a) is None
    gap = gap_between("x", None, a)
    assert (gap.got, gap.expected) == ("None", "1")


def test_what_cancels_is_judged_by_what_it_usually_is():
    a = torch.full((3,), 1e-9, dtype=torch.float64)
    assert gap_between("x", a, 0 * a) is not None
    assert gap_between("x", a, 0 * a, usual=10.0) is None


def test_nan_that_was_expected_is_no_gap_and_other_nan_is_infinite():
    a = torch.tensor([1.0, math.nan])
    assert gap_between("x", a, a) is None
    assert gap_between("x", a, torch.ones(2)).error == math.inf


def test_the_largest_gap_in_tolerances_is_named():
    zeros = torch.zeros(2, dtype=torch.float64)
    assert largest_gap(["a", "b"], [zeros + 1e-3, zeros + 1.0], [zeros, zeros]).path == "b"
    assert largest_gap(["a"], [torch.zeros(2, 1)], [zeros]).error == math.inf
