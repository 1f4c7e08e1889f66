"""Benchmarks whose clock is made up: what is tested is what is made of the times, never the times themselves."""

import pytest
import torch

from pullback.benchmark import ceilings, compare
from pullback.benchmark.result import Bench, Point, Run
from pullback.benchmark.spread import Spread


@pytest.fixture
def made_up(monkeypatch):
    """Let every contender take the seconds that its name stands for: ``made_up(swish=(1e-3, 2e-3))``; others take 1 ms each way."""
    times = {}

    def probe(call):
        forward, backward = times.get(call.name, (1e-3, 1e-3))
        return lambda count: (forward, backward if call.differentiable else 0.0)

    monkeypatch.setattr(compare, "host_probe", probe)
    monkeypatch.setattr(ceilings, "copy_probe", lambda moved, device: lambda count: (moved / 1e9, 0.0))
    monkeypatch.setattr(ceilings, "product_probe", lambda dtype, device: lambda count: (ceilings.FLOPS / 1e11, 0.0))
    return times.update


def even(seconds):
    return Spread(seconds, seconds, seconds)


@pytest.fixture
def stored():
    """Make a result with one contender: ``stored(op=2e-3, reference=1e-3, kept=8)`` at 1000 and 100,000 elements, and a call that costs a tenth."""

    def make(op=1e-3, reference=1e-3, kept=0, names=("op", "reference"), sizes=(1000, 100_000), copy_rate=1e10, **environment):
        def point(size, scale, overhead=False):
            ours = Run(
                "op", even(op * scale / 2), even(op * scale / 2), even(op * scale), of_limit=even(2.0), kept=kept * size, peak=8 * size, moved=20
            )
            quotient = even(op / reference)
            other = even(reference * scale / 2)
            theirs = Run("reference", other, other, even(reference * scale), quotient, quotient, quotient, even(1.0), 4 * size, 16 * size, 20)
            runs = (ours, theirs)[: len(names)]
            return Point(0 if overhead else size, size, f"x: float32[{size}]", runs, overhead, 9, 0.0 if overhead else copy_rate)

        points = (point(12, 0.1, overhead=True), *(point(size, size / 1000) for size in sizes))
        about = {"device": "a processor", "threads": 1, "torch": torch.__version__} | environment
        return Bench("pkg.mod.op", names, points, ("made up",), about)

    return make
