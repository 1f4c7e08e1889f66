"""got = -expected."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class Sign(Hypothesis):
    """The gradient has the opposite sign."""

    name = "sign"
    rank = 10

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        yield Fit("the gradient has the wrong sign", lambda m: -m.expected, "negate the gradient")
