"""A benchmark as a gate: conditions such as ``time>1.1`` on ratios to a stored baseline, or else to the contenders."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .result import Bench, Point, Run
from .spread import Spread, ratio
from .text import factor

Metric = Literal["time", "forward", "backward", "kept", "peak", "overhead"]
METRICS: tuple[Metric, ...] = get_args(Metric)
_CONDITION = re.compile(r"\s*([a-z]+)\s*(>=|>)\s*(\d+(?:\.\d+)?)\s*")
OTHER_MACHINE = 1.25
"""By how much a plain copy may differ from the baseline's before a reader is told."""


@dataclass(frozen=True, slots=True)
class Condition:
    """When to fail.

    Args:
        metric: Which ratio: of time (forward and backward), forward, backward, bytes kept, peak memory, or overhead (time of a tiny call).
        strictly: Whether the limit itself is still right (``>``) or not (``>=``).
        limit: The limit.
    """

    metric: Metric
    strictly: bool
    limit: float

    def __str__(self) -> str:
        return f"{self.metric}{'>' if self.strictly else '>='}{self.limit:g}"

    def met(self, found: Spread) -> bool:
        """Whether the median and the lower quartile, three rounds of four, are beyond the limit."""
        low = min(found.low, found.median)
        return low > self.limit or (not self.strictly and low == self.limit)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One ratio of the benched op.

    Args:
        metric: Of what.
        point: At which size.
        to: To what: a contender's name, or ``"baseline"``.
        found: The ratio.
    """

    metric: Metric
    point: Point
    to: str
    found: Spread


def parse(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a text such as ``"time>1.1, kept>1"``.

    Raises:
        ValueError: for anything else, with what is known.
    """
    found = []
    for part in text.split(","):
        matched = _CONDITION.fullmatch(part)
        if not matched or matched[1] not in METRICS:
            raise ValueError(f"{part.strip()!r} is no condition; write one of {', '.join(METRICS)}, then > or >=, then a ratio: time>1.1")
        metric: Metric = next(known for known in METRICS if known == matched[1])
        found.append(Condition(metric, matched[2] == ">", float(matched[3])))
    return tuple(found)


def to_contenders(bench: Bench) -> list[Comparison]:
    """Return the ratios of the benched op to every contender, at every size."""
    ours = bench.names[0]
    return [
        Comparison(metric, point, run.name, found)
        for point in bench.points
        for run in point.runs[1:]
        for metric, found in _ratios(point, point.run(ours), run)
    ]


def to_baseline(bench: Bench, baseline: Bench) -> list[Comparison]:
    """Return the ratios of the benched op to itself in a stored benchmark, at the sizes that both have.

    Times are divided by how the contenders' times changed that both have: if the reference takes twice as long, the machine is slower, not the op.

    Raises:
        ValueError: if the two have no size in common, or are of different ops.
    """
    ours = bench.names[0]
    if bench.subject.rpartition(".")[2] != baseline.subject.rpartition(".")[2]:
        raise ValueError(f"the baseline is of {baseline.subject}, and this is {bench.subject}")
    pairs = list(_pairs(bench, baseline))
    if not any(not now.overhead for now, _ in pairs):
        sizes = ", ".join(f"{point.size:,}" for point in baseline.sizes)
        raise ValueError(f"the baseline has none of these sizes; it has {sizes}")
    found = []
    for now, then in pairs:
        mine, before = now.run(ours), then.run(baseline.names[0])
        if mine is None or before is None:
            continue
        shared = [(a, b) for a in now.runs[1:] if (b := then.run(a.name)) is not None and a.name != baseline.names[0]]
        for metric, spread in _changes(now, mine, before):
            drift = _drift(now, metric, shared)
            found.append(Comparison(metric, now, "baseline", spread.scaled(1 / drift)))
    return found


def doubts(bench: Bench, baseline: Bench) -> list[str]:
    """Return why times of the two can hardly be compared."""
    found = []
    for key in ("device", "threads", "torch"):
        ours, theirs = bench.environment.get(key), baseline.environment.get(key)
        if ours != theirs:
            found.append(f"the baseline was measured with {key} {theirs}, this with {ours}")
    rates = [ratio(now.copy_rate, then.copy_rate) for now, then in _pairs(bench, baseline) if now.copy_rate and then.copy_rate]
    if rates:
        change = statistics.median(rates)
        if max(change, 1 / change) > OTHER_MACHINE and not set(bench.names[1:]) & set(baseline.names[1:]):
            found.append(f"a plain copy runs at {change:.2f} × its rate of then, and no contender is shared that would show how the machine changed")
    return found


def changes(comparisons: Sequence[Comparison]) -> list[str]:
    """Return one line for each size: what changed since the baseline."""
    points = list(dict.fromkeys(id(c.point) for c in comparisons))
    lines = []
    for key in points:
        mine = [c for c in comparisons if id(c.point) == key]
        ratios = ", ".join(f"{c.metric} {factor(c.found)}" if c.found.low != c.found.high else f"{c.metric} {c.found.median:.3g}" for c in mine)
        lines.append(f"of the baseline, with {mine[0].point.inputs}: {ratios}")
    return lines


def failures(comparisons: Iterable[Comparison], conditions: Sequence[Condition]) -> list[str]:
    """Return what is beyond a condition, in words."""
    return [
        f"{condition}: {comparison.metric} is {factor(comparison.found)} × that of {comparison.to}, with {comparison.point.inputs}"
        for comparison in comparisons
        for condition in conditions
        if comparison.metric == condition.metric and condition.met(comparison.found)
    ]


def _ratios(point: Point, ours: Run | None, theirs: Run) -> Iterator[tuple[Metric, Spread]]:
    if ours is None or theirs.ratio is None:
        return
    if point.overhead:
        yield "overhead", theirs.ratio
        return
    yield "time", theirs.ratio
    if theirs.forward_ratio is not None:
        yield "forward", theirs.forward_ratio
    if theirs.backward_ratio is not None:
        yield "backward", theirs.backward_ratio
    yield from _bytes(ours, theirs)


def _changes(point: Point, now: Run, then: Run) -> Iterator[tuple[Metric, Spread]]:
    if point.overhead:
        yield "overhead", now.time.over(then.time)
        return
    yield "time", now.time.over(then.time)
    yield "forward", now.forward.over(then.forward)
    if now.backward is not None and then.backward is not None:
        yield "backward", now.backward.over(then.backward)
    yield from _bytes(now, then)


def _bytes(ours: Run, theirs: Run) -> Iterator[tuple[Metric, Spread]]:
    yield "kept", Spread.of([ratio(ours.kept, theirs.kept)])
    yield "peak", Spread.of([ratio(ours.peak, theirs.peak)])


def _drift(point: Point, metric: Metric, shared: Sequence[tuple[Run, Run]]) -> float:
    if metric in ("kept", "peak"):
        return 1.0
    changes = [spread.median for a, b in shared for name, spread in _changes(point, a, b) if name == metric]
    return statistics.median(changes) if changes else 1.0


def _pairs(bench: Bench, baseline: Bench) -> Iterator[tuple[Point, Point]]:
    known = {(point.overhead, point.size or point.elements): point for point in baseline.points}
    for point in bench.points:
        other = known.get((point.overhead, point.size or point.elements))
        if other is not None:
            yield point, other
