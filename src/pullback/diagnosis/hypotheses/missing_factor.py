"""expected = factor · got elementwise, or the other way round, with a simple factor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch, has_size
from ._paths import along, paths
from ._terms import Term, factors


class MissingFactor(Hypothesis):
    """A factor of the chain rule is left out, or multiplied in although it does not belong there."""

    name = "missing-factor"
    rank = 22

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for name, factor in factors(mismatch):
            if not _spreads(factor(mismatch), mismatch.expected.shape):
                continue
            number = mismatch.numbers.get(name.removeprefix("1 / "))
            chance = number is not None and has_size(mismatch, number)
            yield Fit(
                f"the factor {name} is missing",
                lambda m, factor=factor: _divided(m.expected, factor(m)),
                f"multiply the gradient by {name}",
                f"returned * {name}",
                sized=number is not None,
                ambiguous=chance,
            )
            yield Fit(
                f"the gradient is multiplied by {name}, which does not belong there",
                lambda m, factor=factor: _product(m, factor),
                f"leave the factor {name} out",
                sized=number is not None,
                ambiguous=chance,
            )


class FactorReadAsOne(Hypothesis):
    """The formula is right if an argument, that is a factor in it, were 1 everywhere."""

    name = "missing-factor"
    rank = 21

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path in mismatch.arguments:
            if path != mismatch.path:
                yield Fit(
                    f"the factor {path} is missing inside the formula",
                    lambda m, path=path: m.vjp(m.path, values={path: torch.ones_like(m.arguments[path])}),
                    f"multiply by {path} where the chain rule passes through it",
                )


class FactorOfOutput(Hypothesis):
    """An argument that scales the outputs, one number for each row or channel, is left out."""

    name = "missing-factor"
    rank = 23

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, argument in mismatch.arguments.items():
            for name, turned in ((path, False), *([(f"{path}.mT", True)] if argument.dim() == 2 else [])):
                factor = argument.mT if turned else argument
                if path == mismatch.path or not all(_spreads(factor, c.shape) and factor.numel() < c.numel() for c in mismatch.cotangents.values()):
                    continue
                yield Fit(
                    f"the factor {name}, which scales the output, is missing",
                    lambda m, path=path, turned=turned: _before(m, m.arguments[path].mT if turned else m.arguments[path]),
                    f"multiply grad_output by {name} first",
                )


class FactorOfTerm(Hypothesis):
    """A factor is left out of the one term that goes through an intermediate of forward."""

    name = "missing-factor"
    rank = 28

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if mismatch.expected.is_complex():
            return
        for n, place in paths(mismatch):
            for name, factor in factors(mismatch):
                if not _spreads(factor(mismatch), mismatch.expected.shape):
                    continue
                yield Fit(
                    f"in the term that goes through {place} the factor {name} is missing",
                    lambda m, n=n, factor=factor: along(m, n, lambda term: _divided(term, factor(m))),
                    f"multiply that term by {name}",
                )


class ScalarDerivativeMissing(Hypothesis):
    """The derivative of an inner scalar (a scale, slope or temperature given as a number) is left out or applied twice."""

    name = "scalar-derivative-missing"
    rank = 7

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for name, number in mismatch.numbers.items():
            if number in (0.0, 1.0, -1.0, 2.0, 0.5):
                continue
            chance = has_size(mismatch, number)
            yield Fit(
                f"the factor {name} = {number:g} is missing",
                lambda m, name=name: m.expected / m.numbers[name],
                f"multiply the gradient by {name}",
                f"returned * {name}",
                sized=True,
                ambiguous=chance,
            )
            yield Fit(
                f"a factor 1/{name} is missing, or {name} = {number:g} is applied twice",
                lambda m, name=name: m.expected * m.numbers[name],
                f"divide the gradient by {name}",
                f"returned / {name}",
                sized=True,
                ambiguous=chance,
            )


def _before(m: Mismatch, factor: Tensor) -> Tensor | None:
    """Return the gradient for grad_output divided by a factor."""
    if not bool((factor != 0).all()):
        return None
    return m.vjp(m.path, cotangents={name: c / factor for name, c in m.cotangents.items()})


def _spreads(factor: Tensor | None, shape: torch.Size) -> bool:
    """Whether `factor` broadcasts to `shape` and no further."""
    if factor is None or factor.dim() > len(shape):
        return False
    return all(n in (1, want) for n, want in zip(reversed(factor.shape), reversed(shape), strict=False))


def _divided(expected: Tensor, factor: Tensor | None) -> Tensor | None:
    if factor is None or factor.numel() == 0 or not bool((factor != 0).all()):
        return None
    return expected / factor


def _product(m: Mismatch, factor: Term) -> Tensor | None:
    value = factor(m)
    return None if value is None else m.expected * value
