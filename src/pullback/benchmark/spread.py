"""Quartiles of repeated measurements, and of their ratios pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle half of some measurements.

    Args:
        low: Lower quartile.
        median: Median.
        high: Upper quartile.
    """

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the quartiles of at least one value."""
        found = list(values)
        if len(found) == 1:
            return cls(found[0], found[0], found[0])
        low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
        return cls(low, middle, high)

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Spread:
        """Return the quartiles of each round's own ratio, so that what slows a whole round down cancels."""
        return cls.of(a / b for a, b in zip(ours, theirs, strict=True))

    def over(self, other: Spread) -> Spread:
        """Return the ratio to measurements of another run, quartile by quartile."""
        return Spread(ratio(self.low, other.low), ratio(self.median, other.median), ratio(self.high, other.high))

    def scaled(self, factor: float) -> Spread:
        """Return all three times `factor`."""
        return Spread(self.low * factor, self.median * factor, self.high * factor)


def ratio(ours: float, theirs: float) -> float:
    """Return the ratio of two sizes: 1 where both are zero, infinite where only theirs is."""
    if theirs:
        return ours / theirs
    return float("inf") if ours else 1.0
