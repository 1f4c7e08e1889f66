"""expected = factor · got elementwise, or the other way round, with a simple factor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch
from ._terms import Term, factors


class MissingFactor(Hypothesis):
    """A factor of the chain rule is left out, or multiplied in although it does not belong there."""

    name = "missing-factor"
    rank = 22

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for name, factor in factors(mismatch):
            if _shape(factor(mismatch)) not in (mismatch.expected.shape, torch.Size()):
                continue
            yield Fit(
                f"the factor {name} is missing",
                lambda m, factor=factor: _divided(m.expected, factor(m)),
                f"multiply the gradient by {name}",
            )
            yield Fit(
                f"the gradient is multiplied by {name}, which does not belong there",
                lambda m, factor=factor: _product(m, factor),
                f"leave the factor {name} out",
            )


class ScalarDerivativeMissing(Hypothesis):
    """The derivative of an inner scalar (a scale, slope or temperature given as a number) is left out or applied twice."""

    name = "scalar-derivative-missing"
    rank = 7

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for name, number in mismatch.numbers.items():
            if number in (0.0, 1.0, -1.0, 2.0, 0.5):
                continue
            yield Fit(
                f"the factor {name} = {number:g} is missing", lambda m, name=name: m.expected / m.numbers[name], f"multiply the gradient by {name}"
            )
            yield Fit(
                f"the factor {name} = {number:g} is applied twice",
                lambda m, name=name: m.expected * m.numbers[name],
                f"divide the gradient by {name}",
            )


def _shape(value: Tensor | None) -> torch.Size | None:
    return None if value is None else value.shape


def _divided(expected: Tensor, factor: Tensor | None) -> Tensor | None:
    if factor is None or factor.numel() == 0 or not bool((factor != 0).all()):
        return None
    return expected / factor


def _product(m: Mismatch, factor: Term) -> Tensor | None:
    value = factor(m)
    return None if value is None else m.expected * value
