"""How much of the checked op's own time a sweep may take, counted in evaluations whose cost was measured once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

HEAVY = 0.05
"""From how many seconds on, for a forward and a backward, evaluations are counted; below, sweeps look at the clock themselves."""
SECONDS = 1.0
LEAST = 4
"""How many evaluations a check may make, whatever they cost."""

Stage = Literal["forward", "backward"]


class Spent(BaseException):
    """A sweep has no time left; no `Exception`, so that nothing takes it for an error of the checked code."""


@dataclass(slots=True)
class Meter:
    """Counts what the evaluations of one case cost; all evaluators of the case share it.

    Args:
        forward: Seconds that one forward takes.
        backward: Seconds that one backward takes.
        left: Seconds that are left to whoever runs now.
    """

    forward: float = 0.0
    backward: float = 0.0
    left: float = math.inf

    @property
    def each(self) -> float:
        """Seconds of one evaluation, forward and backward."""
        return self.forward + self.backward

    @property
    def heavy(self) -> bool:
        """Whether evaluations are too dear to be made as often as a sweep likes."""
        return self.each > HEAVY

    def spend(self, stage: Stage) -> None:
        """Charge one forward or backward to whoever runs now.

        Raises:
            Spent: if there was nothing left for it.
        """
        if self.left <= 0:
            raise Spent
        self.left -= self.forward if stage == "forward" else self.backward

    @contextmanager
    def sweep(self) -> Iterator[None]:
        """Limit what is spent within, where evaluations are dear; it raises `Spent` then."""
        seconds = max(SECONDS, LEAST * self.each) if self.heavy else math.inf
        before, self.left = self.left, min(self.left, seconds)
        start = self.left
        try:
            yield
        finally:
            self.left = before - (start - self.left) if before < math.inf else before

    @contextmanager
    def free(self) -> Iterator[None]:
        """Charge what is spent within to nobody: others need it as well."""
        before, self.left = self.left, math.inf
        try:
            yield
        finally:
            self.left = before
