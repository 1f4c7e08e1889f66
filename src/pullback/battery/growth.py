"""How much memory a call takes as one of its sizes grows: measured at small sizes, so that a large one that would not fit, or end, is never tried."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from .evaluate import Evaluator, UserCodeError
from .single import OperatorCount

BEARABLE = 2**27
"""How many elements the operators of one pass may return in all: a gigabyte in float64."""
FIRST = 8
SECONDS = 0.1
"""A pass that takes longer than this is the last that is measured: a solve of twice the size takes eight times as long."""
FREE = 17
"""Up to this size nothing is measured."""


@dataclass(slots=True)
class Growth:
    """Elements that the operators of one pass return, by size.

    Args:
        passes: Gives the calls that are run at a size, such as the op's and its reference's; none where the size is refused.
        limit: How many elements are bearable.
    """

    passes: Callable[[int], Iterable[Evaluator]]
    limit: int = BEARABLE
    _seen: dict[int, int] = field(default_factory=dict)
    _slow: int | None = None

    def bears(self, size: int) -> bool:
        """Return whether a pass at `size` is bearable, by how passes at 8, 16, 32 and so on grow; each is predicted before it is run."""
        if size <= FREE:
            return True
        rung = FIRST
        while rung < size:
            if self._predicted(rung) > self.limit or (self._slow is not None and rung > self._slow):
                return False
            if len(self._counts()) > 1 and self._predicted(size, beyond=1.0) <= self.limit:
                return True
            if rung not in self._seen:
                start = time.thread_time()
                self._seen[rung] = max((elements(evaluator) for evaluator in self.passes(rung)), default=0)
                if time.thread_time() - start > SECONDS:
                    self._slow = rung
            rung *= 2
        return self._predicted(size) <= self.limit

    def _counts(self) -> list[tuple[int, int]]:
        return [(size, count) for size, count in sorted(self._seen.items()) if count]

    def _predicted(self, size: int, beyond: float = 0.0) -> float:
        """The elements to expect at `size` if the number grows as between the last two sizes, or by another power of the size."""
        counts = self._counts()
        if size in self._seen or len(counts) < 2:
            return self._seen.get(size, 0)
        (before, fewer), (last, count) = counts[-2:]
        power = max(1.0, math.log(count / fewer) / math.log(last / before)) + beyond
        return count * (size / last) ** power


def elements(evaluator: Evaluator) -> int:
    """Return how many elements the operators of a call return, forward and backward; 0 where it refuses."""
    with OperatorCount() as count:
        try:
            outcome = evaluator.forward()
            if outcome.carrying:
                evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
        except UserCodeError:
            return 0
    return count.elements


def predicted(costs: list[tuple[int, float, int]], size: int) -> tuple[float, float]:
    """Seconds and output elements to expect at `size`, from the growth between the last two sizes that were tried."""
    if not costs:
        return 0.0, 0.0
    last = costs[-1]
    before = max((c for c in costs[:-1] if 0 < c[0] < last[0]), default=None)
    if before is None or last[0] >= size:
        return last[1], float(last[2])
    ratio = math.log(last[0] / before[0])
    growth = [min(4.0, max(least, math.log(max(last[k], 1e-9) / max(before[k], 1e-9)) / ratio)) for k, least in ((1, 0.0), (2, 0.0))]
    factor = size / last[0]
    return last[1] * factor ** growth[0], last[2] * factor ** growth[1]
