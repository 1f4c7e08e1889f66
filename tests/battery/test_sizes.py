"""Sizes change together, and contents keep their character."""

import pytest
import torch

import pullback as pb
from pullback.battery.probe import Probe
from pullback.battery.size_sweep import Sweep
from pullback.battery.size_trials import Trial
from pullback.battery.sizes import MAX_ELEMENTS, Resizer, refill, symbols
from pullback.capture.case import case


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        return args[0] * 1

    @staticmethod
    def backward(ctx, dy):
        return dy, *[None] * (len(ctx.needs_input_grad) - 1)


def evaluator(*args):
    return Probe(case(Op, *args)).native


def x(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def generator():
    return torch.Generator().manual_seed(0)


def test_equal_sizes_and_numbers_share_a_symbol():
    batch, width = symbols(evaluator(x(4, 3), torch.randn(3), torch.arange(4), 3, True))
    assert (batch.size, batch.batch, batch.axes) == (4, True, (("args[0]", 0), ("args[2]", 0)))
    assert (width.size, width.batch, width.numbers) == (3, False, ("args[3]",))


class Strided(Op):
    @staticmethod
    def forward(ctx, x, stride, count):
        return x[:, ::stride] * count

    @staticmethod
    def backward(ctx, dy):
        return None, None, None


def test_a_stride_equals_a_size_by_chance():
    batch = symbols(Probe(case(Strided, x(2, 7), 2, 2)).native)[0]
    assert (batch.size, batch.numbers) == (2, ("count",))


def test_resizing_changes_all_of_them():
    call = evaluator(x(4, 3), torch.randn(3), 3)
    width = symbols(call)[1]
    fresh = Resizer(call).resized(width, 5).arguments().args
    assert [tuple(fresh[0].shape), tuple(fresh[1].shape), fresh[2]] == [(4, 5), (5,), 5]
    kept = Resizer(call).resized(width.without_numbers(), 5).arguments().args
    assert kept[2] == 3


def test_one_is_a_size_only_for_a_batch():
    assert [s.axes for s in symbols(evaluator(x(1, 3), torch.randn(1)))] == [(("args[0]", 0),), (("args[0]", 1),)]
    with_lengths = symbols(evaluator(x(1, 3), torch.tensor([3])))[0]
    assert with_lengths.axes == (("args[0]", 0), ("args[1]", 0))
    assert with_lengths.of_rank({"args[0]": 2, "args[1]": 1}).axes == (("args[0]", 0),)


def test_tied_axes_do_not_explode():
    call = evaluator(x(3, 3, 3, 3))
    assert Resizer(call).resized(symbols(call)[0], int(MAX_ELEMENTS**0.25) + 2) is None


def test_permutations_offsets_and_indices_stay_what_they_are():
    order = refill(torch.tensor([2, 0, 1]), [7], 3, 7, generator())
    assert order.sort().values.tolist() == list(range(7))
    assert refill(torch.arange(3), [5], 3, 5, generator()).tolist() == [0, 1, 2, 3, 4]
    index = refill(torch.tensor([[0, 3], [1, 2]]), [6, 2], 4, 2, generator())
    assert int(index.max()) < 2
    offsets = Resizer(evaluator(x(6, 2), torch.tensor([0, 2, 6]))).resized(symbols(evaluator(x(6, 2), torch.tensor([0, 2, 6])))[0], 12)
    assert offsets.arguments().args[1].tolist() == [0, 4, 12]


def test_floats_keep_sign_range_and_masks():
    positive = refill(torch.rand(4, dtype=torch.float64) + 1, [50], 4, 50, generator())
    assert bool((positive >= 1).all())
    assert positive.unique().numel() > 4
    mask = refill(torch.tensor([0.0, 1.0, 1.0]), [50], 3, 50, generator())
    assert set(mask.tolist()) == {0.0, 1.0}
    edges = refill(torch.tensor([0.1, 0.5, 0.7]), [9], 3, 9, generator())
    assert bool((edges.diff() >= 0).all())
    assert refill(torch.ones(3), [0], 3, 0, generator()).shape == (0,)


def test_a_permutation_of_one_axis_stays_one_where_another_axis_shrinks():
    call = evaluator(x(3, 4), torch.tensor([0, 2, 1]))
    other = next(s for s in symbols(call) if s.size == 4)
    assert Resizer(call).resized(other, 1).arguments().args[1].tolist() == [0, 2, 1]


@pytest.mark.parametrize("slow", [{}, {1025: [0.03] * 9}, {1025: [0.03] * 9, 4732: [0.03] * 9}, {1025: [0.9]}])
def test_a_pass_that_is_slow_by_chance_does_not_end_the_sweep(monkeypatch, slow):
    left = {size: list(seconds) for size, seconds in slow.items()}

    def tried(sweep, resizer, symbol, size):
        sweep._note_cost(symbol, (size, left[size].pop() if left.get(size) else 1e-3, size))
        return Trial(symbol, size, "right")

    monkeypatch.setattr(Sweep, "_tried", tried)
    monkeypatch.setattr(Sweep, "_bearable", lambda sweep, symbol, size: True)
    call = evaluator(x(3))
    symbol = symbols(call)[0]
    sweep = Sweep(None, 1.0, ())
    for size in (67, 129, 1025):
        assert sweep._timed(Resizer(call), symbol, size) is not None
    assert sweep._timed(Resizer(call), symbol, 21_847) is not None


def test_a_size_that_is_too_dear_is_not_tried(monkeypatch):
    def tried(sweep, resizer, symbol, size):
        sweep._note_cost(symbol, (size, 1e-10 * size**3, size))
        return Trial(symbol, size, "right")

    monkeypatch.setattr(Sweep, "_tried", tried)
    monkeypatch.setattr(Sweep, "_bearable", lambda sweep, symbol, size: True)
    call = evaluator(x(3))
    symbol = symbols(call)[0]
    sweep = Sweep(None, 1.0, ())
    for size in (67, 129, 1025):
        assert sweep._timed(Resizer(call), symbol, size) is not None
    assert sweep._timed(Resizer(call), symbol, 21_847) is None
    assert sweep.stopped
    assert all(1e-10 * size**3 <= 1.0 for size, _, _ in sweep._costs[symbol])


class AddsFirstRows(torch.autograd.Function):
    """Wrong for more than eight rows."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return torch.cat([2 * dy[:8], dy[8:]])


@pytest.mark.parametrize("overrun", [False, True])
def test_a_fault_that_takes_too_long_to_make_sure_of_is_not_claimed(monkeypatch, overrun):
    monkeypatch.setattr(Sweep, "_overrun", lambda self: overrun)
    report = pb.check(AddsFirstRows, torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(3, 2).requires_grad_(), select=["PB625"])
    assert [f.code for f in report.findings] == ([] if overrun else ["PB625"])
