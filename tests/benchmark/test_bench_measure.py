"""Turns are taken in both directions, and quartiles of ratios are those of rounds."""

import gc

import pytest

from pullback.benchmark.measure import LEAST_ROUNDS, MOST_CALLS, MOST_ROUNDS, TURN, Plan, interleave, plan, summarise
from pullback.benchmark.spread import Spread, ratio


def test_quartiles():
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(2.0, 3.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_a_slow_machine_cancels_in_ratios():
    slow = [1.0, 1.0, 9.0, 9.0, 2.0]
    assert Spread.of_ratios([3.0 * s for s in slow], [2.0 * s for s in slow]) == Spread(1.5, 1.5, 1.5)


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(6, 3, 2.0), (0, 0, 1.0), (1, 0, float("inf")), (0, 5, 0.0)])
def test_ratio_of_sizes(ours, theirs, expected):
    assert ratio(ours, theirs) == expected


def test_turns_are_taken_in_both_directions_without_the_collector():
    seen = []

    def probe(name):
        def run(count):
            seen.append((name, count, gc.isenabled()))
            return 1.0, 2.0

        return run

    found = interleave({"a": probe("a"), "b": probe("b")}, Plan(3, {"a": 4, "b": 7}))
    assert [(name, count) for name, count, _ in seen] == [("a", 4), ("b", 7), ("b", 7), ("a", 4), ("a", 4), ("b", 7)]
    assert not any(enabled for _, _, enabled in seen)
    assert gc.isenabled()
    assert found == {"a": [(1.0, 2.0)] * 3, "b": [(1.0, 2.0)] * 3}


def test_quick_calls_are_repeated_until_a_turn_lasts():
    planned = plan({"quick": lambda count: (1e-5, 1e-5), "slow": lambda count: (0.1, 0.1)}, 10.0)
    assert planned.calls == {"quick": pytest.approx(TURN / 2e-5, abs=1), "slow": 1}
    assert planned.rounds == int(10 / (0.2 + planned.calls["quick"] * 2e-5))


@pytest.mark.parametrize(("once", "seconds", "rounds", "calls"), [(5.0, 1.0, LEAST_ROUNDS, 1), (1e-9, 1e9, MOST_ROUNDS, MOST_CALLS)])
def test_rounds_and_calls_have_bounds(once, seconds, rounds, calls):
    planned = plan({"a": lambda count: (once, 0.0)}, seconds)
    assert (planned.rounds, planned.calls["a"]) == (rounds, calls)


def test_the_first_warm_up_does_not_count():
    times = iter([5.0, 1e-3, 2e-3])
    assert plan({"a": lambda count: (next(times), 0.0)}, 1.0).calls["a"] == 2


def test_summary_compares_round_by_round():
    ours, theirs = [(1.0, 3.0), (2.0, 6.0), (4.0, 12.0)], [(2.0, 2.0), (4.0, 4.0), (8.0, 8.0)]
    run = summarise("b", theirs, ours, [1.0, 2.0, 4.0])
    assert (run.ratio, run.forward_ratio, run.backward_ratio) == (Spread(1, 1, 1), Spread(0.5, 0.5, 0.5), Spread(1.5, 1.5, 1.5))
    assert run.of_limit == Spread(4, 4, 4)
    assert run.time == Spread(6, 8, 12)


def test_without_a_gradient_there_is_no_backward():
    run = summarise("b", [(1.0, 0.0)] * 2, [(2.0, 0.0)] * 2, backward=False)
    assert (run.backward, run.backward_ratio, run.ratio) == (None, None, Spread(2, 2, 2))
