"""Calls with large tensors are checked with smaller ones, and at the given sizes where only those are wrong."""

import pytest
import torch
from weighted_rows import Weighted, WeightedByMean

import pullback as pb
from pullback.battery.smaller import ENOUGH, LARGE, smaller

ROWS, COLUMNS = 700, 100


class WrongAtTheGivenSize(Weighted):
    """Right for every number of rows but one."""

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, (dy * x).sum(0) * (2 if len(x) == ROWS else 1)


class Rows(torch.autograd.Function):
    """Chosen rows of a table."""

    @staticmethod
    def forward(ctx, table, index, count):
        if count != len(table):
            raise ValueError("count is the number of rows")
        ctx.save_for_backward(index)
        ctx.count = count
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        return dy.new_zeros(ctx.count, dy.shape[1]).index_add(0, index, dy), None, None


class Wide(torch.autograd.Function):
    """Takes 300 columns only."""

    @staticmethod
    def forward(ctx, x):
        if x.shape[1] != 300:
            raise ValueError("300 columns are needed")
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(300, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return Weighted.apply(x, self.w)


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def large_calls():
    return sum(n >= LARGE for n in Weighted.elements)


def given():
    return drawn(ROWS, COLUMNS), drawn(COLUMNS)


def shapes(case):
    return [tuple(value.shape) for value in case.args if isinstance(value, torch.Tensor)]


def test_verdicts_come_from_small_tensors_and_the_report_says_which():
    Weighted.elements.clear()
    report = pb.check(Weighted, given())
    assert (report.ok, 0 < large_calls() < 30) == (True, True)
    assert dict(report.environment["smaller"]) == {report.subjects[0]: "x [28, 100] for [700, 100]"}
    assert "smaller      x [28, 100] for [700, 100]" in str(report)
    wrong = pb.check(WeightedByMean, given())
    assert "PB501" in [finding.code for finding in wrong.findings]
    assert "mean over the 28 elements" in (wrong.findings[0].cause or "")


def test_what_is_wrong_at_the_given_sizes_alone_is_found_there():
    report = pb.check(WrongAtTheGivenSize, given(), select=["PB501"])
    assert [finding.code for finding in report.findings] == ["PB501"]
    assert "smaller" not in report.environment


def test_the_thorough_tier_keeps_the_given_sizes():
    Weighted.elements.clear()
    report = pb.check(Weighted, given(), select=["PB501"], thorough=True)
    assert (report.ok, "smaller" in report.environment) == (True, False)
    assert large_calls() > 5


@pytest.mark.parametrize("origin", ["searched", "recorded"])
def test_recorded_and_searched_calls_stay_as_they_are(origin):
    case = pb.case(Weighted, *given())
    assert smaller(case) is not None
    object.__setattr__(case, "origin", origin)
    assert smaller(case) is None


def test_small_calls_stay_as_they_are():
    assert smaller(pb.case(Weighted, drawn(20, 10), drawn(10))) is None


def test_sizes_that_belong_together_change_together():
    index = torch.randint(5000, (900,), generator=torch.Generator().manual_seed(0))
    less = smaller(pb.case(Rows, drawn(5000, 40), index, 5000))
    assert less is not None
    table, taken, count = less.case.args
    assert (len(table), int(taken.max()) < len(table)) == (count, True)
    assert table.numel() + taken.numel() <= ENOUGH
    assert pb.check(Rows, (drawn(5000, 40), index, 5000)).ok


def test_axes_of_different_length_stay_different():
    less = smaller(pb.case(Weighted, drawn(512, 256, 64), drawn(256, 64)))
    assert less is not None
    assert shapes(less.case) == [(16, 32, 48), (32, 48)]


def test_a_size_that_forward_insists_on_stays():
    less = smaller(pb.case(Wide, drawn(300, 300)))
    assert less is None or shapes(less.case) == [(28, 300)]
    less = smaller(pb.case(Wide, drawn(4099, 300)))
    assert less is not None
    assert shapes(less.case) == [(19, 300)]


def test_layouts_and_wishes_for_gradients_stay():
    x, w = drawn(COLUMNS, ROWS).t().requires_grad_(), drawn(COLUMNS)
    less = smaller(pb.case(Weighted, x, w))
    assert less is not None
    small, weight = less.case.args
    assert (small.stride(), small.requires_grad, weight.requires_grad) == ((1, 28), True, False)


def test_parameters_of_a_module_become_smaller_with_its_input():
    less = smaller(pb.case(Scaled(), drawn(1000, 300)))
    assert less is not None
    parameters, x = less.case.args
    assert parameters["w"].shape == x.shape[1:]
    assert pb.check(Scaled(), drawn(1000, 300)).ok
