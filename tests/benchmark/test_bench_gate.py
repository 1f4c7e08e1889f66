"""Conditions are read by a small grammar, and noise alone breaks none."""

from dataclasses import replace

import pytest

from pullback.benchmark import gate
from pullback.benchmark.gate import Condition, parse
from pullback.benchmark.spread import Spread


def test_conditions_are_read():
    assert parse("time>1.1, kept >= 2") == (Condition("time", True, 1.1), Condition("kept", False, 2.0))
    assert [str(c) for c in parse("overhead>=1.50")] == ["overhead>=1.5"]


@pytest.mark.parametrize(
    "text", ["", "time", "time<1", "tim>1", "time>x", "time>1 or kept>1", "__import__('os')>1", "time>1e3", "time>-1", "time==1"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="time, forward, backward, kept, peak, overhead"):
        parse(text)


@pytest.mark.parametrize(
    ("found", "met"),
    [((1.2, 1.3, 1.4), True), ((0.9, 1.3, 2.0), False), ((1.1, 1.3, 1.4), False), ((1.0, 1.0, 1.0), False)],
)
def test_three_rounds_of_four_must_be_beyond(found, met):
    assert Condition("time", True, 1.1).met(Spread(*found)) is met


def test_at_least_means_the_limit_too():
    assert Condition("kept", False, 1.0).met(Spread(1, 1, 1))
    assert not Condition("kept", True, 1.0).met(Spread(1, 1, 1))


def test_contenders_are_the_measure_without_a_baseline(stored):
    failures = stored(op=3e-3, reference=2e-3).failures("time>1.4")
    assert failures == [f"time>1.4: time is 1.50 (1.50–1.50) × that of reference, with x: float32[{n}]" for n in (1000, 100000)]
    assert stored(op=2e-3, reference=2e-3).failures("time>1.05, forward>1.05, backward>1.05, overhead>1.05, kept>1, peak>1") == []


@pytest.mark.parametrize(("condition", "count"), [("overhead>1.4", 1), ("forward>1.4", 2), ("backward>1.4", 2), ("kept>1", 2), ("peak>=0.5", 2)])
def test_every_metric_is_judged(stored, condition, count):
    assert len(stored(op=3e-3, reference=2e-3, kept=8).failures(condition)) == count


def test_slower_than_the_baseline_fails(stored):
    assert stored(op=2e-3).failures("time>1.5", stored(op=1e-3))
    assert not stored(op=1e-3).failures("time>1.5", stored(op=1e-3))


def test_a_slower_machine_is_no_regression(stored):
    assert stored(op=2e-3, reference=2e-3).failures("time>1.1, overhead>1.1", stored(op=1e-3, reference=1e-3)) == []
    assert stored(op=2e-3, names=("op",)).failures("time>1.1", stored(op=1e-3, names=("op",)))


def test_a_faster_reference_alone_is_no_fault_of_the_op_in_bytes(stored):
    now, then = stored(kept=4, reference=5e-4), stored(kept=4)
    assert now.failures("kept>1, peak>1", then) == []
    assert stored(kept=1).failures("kept>1", stored(kept=0))


def test_another_op_or_other_sizes_are_no_baseline(stored):
    now = stored()
    with pytest.raises(ValueError, match=r"the baseline is of pkg\.mod\.other, and this is pkg\.mod\.op"):
        now.failures("time>1", replace(now, subject="pkg.mod.other"))
    with pytest.raises(ValueError, match="it has 5,000"):
        now.failures("time>1", stored(sizes=(5000,)))


def test_the_same_op_may_have_moved(stored):
    now = stored()
    assert replace(now, subject="elsewhere.op").failures("time>1.1", now) == []


def test_doubts_are_told(stored):
    now = stored()
    assert gate.doubts(now, now) == []
    assert gate.doubts(now, stored(threads=2)) == ["the baseline was measured with threads 2, this with 1"]
    alone = stored(names=("op",), copy_rate=5e9)
    assert "0.50 × its rate of then" in gate.doubts(alone, stored(names=("op",)))[0]


def test_changes_are_one_line_a_size(stored):
    lines = gate.changes(gate.to_baseline(stored(op=2e-3), stored(op=1e-3)))
    assert len(lines) == 3
    assert lines[1] == "of the baseline, with x: float32[1000]: time 2, forward 2, backward 2, kept 1, peak 1"
