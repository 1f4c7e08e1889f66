"""The cotangent of one output is added twice, or given to another output."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class OutputCountedTwice(Hypothesis):
    """The gradient of one output is added twice, or stands in for another's."""

    name = "output-counted-twice"
    rank = 8

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if len(mismatch.cotangents) < 2:
            return
        for path in mismatch.cotangents:
            yield Fit(
                f"the gradient of {path} is counted twice",
                lambda m, path=path: m.vjp(m.path, cotangents={p: 2 * c if p == path else c for p, c in m.cotangents.items()}),
                f"add what grad_output of {path} contributes once",
            )
            for other in mismatch.cotangents:
                if other != path and mismatch.cotangents[other].shape == mismatch.cotangents[path].shape:
                    yield Fit(
                        f"the gradient of {path} is used in place of the one of {other}",
                        lambda m, path=path, other=other: m.vjp(
                            m.path, cotangents={p: m.cotangents[path] if p == other else c for p, c in m.cotangents.items()}
                        ),
                        f"use grad_output of {other}",
                    )
