"""got is the gradient with one intermediate of forward treated as a constant."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch

LIMIT = 60


class DetachedIntermediate(Hypothesis):
    """backward treats an intermediate (a mean, a norm, a scale) as a constant although it depends on the input."""

    name = "detached-intermediate"
    rank = 17

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for n in range(LIMIT):
            found = mismatch.cut(n)
            if found is None:
                return

            def predict(m: Mismatch, n: int = n) -> Tensor | None:
                again = m.cut(n)
                return None if again is None else again[1]

            yield Fit(f"{found[0]} is treated as a constant, though it depends on {mismatch.path}", predict, f"differentiate through {found[0]} too")
