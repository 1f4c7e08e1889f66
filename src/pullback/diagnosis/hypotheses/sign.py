"""got = -expected."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch
from ._outputs import combined


class Sign(Hypothesis):
    """The gradient has the opposite sign."""

    name = "sign"
    rank = 10

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        yield Fit("the gradient has the wrong sign", lambda m: -m.expected, "negate the gradient", "-returned")
        for path in mismatch.cotangents if len(mismatch.cotangents) > 1 else ():
            yield Fit(
                f"what {path} contributes has the wrong sign",
                lambda m, path=path: combined(m, {path: -1.0}),
                f"change the sign of the term with grad_output of {path}",
            )
