"""got is the right gradient of another input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch, agrees


class SwappedGradients(Hypothesis):
    """Gradients are returned in the wrong order."""

    name = "swapped-gradients"
    rank = 11

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, gradient in mismatch.gradients.items():
            elsewhere = mismatch.returned.get(path)
            if path != mismatch.path and gradient.shape == mismatch.expected.shape and elsewhere is not None and not agrees(elsewhere, gradient):
                yield replace(_at_the_place_of(path, mismatch.path), mend=f"returned.{path}")


class GradientTwice(Hypothesis):
    """The gradient of another input is returned for this one too."""

    name = "swapped-gradients"
    rank = 27

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, gradient in mismatch.gradients.items():
            if path != mismatch.path and gradient.shape == mismatch.expected.shape:
                yield _at_the_place_of(path, mismatch.path)


class SwappedCotangents(Hypothesis):
    """The grad_outputs of two outputs stand in for each other."""

    name = "swapped-gradients"
    rank = 11

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for a, b in itertools.combinations(mismatch.cotangents, 2):
            if mismatch.cotangents[a].shape == mismatch.cotangents[b].shape:
                yield Fit(
                    f"the grad_outputs of {a} and {b} are taken for each other",
                    lambda m, a=a, b=b: m.vjp(m.path, cotangents={**m.cotangents, a: m.cotangents[b], b: m.cotangents[a]}),
                    "take grad_outputs in the order of forward's outputs",
                )


def _at_the_place_of(path: str, place: str) -> Fit:
    return Fit(
        f"backward returns the gradient of {path} at the place of {place}",
        lambda m: m.gradients.get(path),
        "return gradients in the order of forward's arguments",
    )
