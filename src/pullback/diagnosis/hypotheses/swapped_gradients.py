"""got is the right gradient of another input."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class SwappedGradients(Hypothesis):
    """Gradients are returned in the wrong order."""

    name = "swapped-gradients"
    rank = 11

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, gradient in mismatch.gradients.items():
            if path != mismatch.path and gradient.shape == mismatch.expected.shape:
                yield Fit(
                    f"backward returns the gradient of {path} at the place of {mismatch.path}",
                    lambda m, path=path: m.gradients.get(path),
                    "return gradients in the order of forward's arguments",
                )
