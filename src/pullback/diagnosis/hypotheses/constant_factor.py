"""got = c · expected with a constant c that has a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import AGREES, Fit, Mismatch, has_size
from ._numbers import CLOSE, ROOTS, said, undone
from ._outputs import coefficients, combined

CONSTANTS = (2.0, 1 / 2, 3.0, 1 / 3, 4.0, 1 / 4, *ROOTS.values())


class Named(NamedTuple):
    """A constant that has a name.

    Args:
        text: What it is of the right gradient.
        value: What it is in a mismatch.
        fix: What undoes it.
        mend: As in `Fit`.
    """

    text: str
    value: Callable[[Mismatch], float]
    fix: str
    mend: str | None = None


class ConstantFactor(Hypothesis):
    """A factor is missing or applied twice: 2 of a square, 1/N of a mean, the batch size."""

    name = "constant-factor"
    rank = 12

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        factor = ratio(mismatch)
        if factor is None:
            return
        chance = has_size(mismatch, factor) or has_size(mismatch, factor**2)
        for text, value, fix, mend in named(mismatch):
            if math.isclose(value(mismatch), factor, rel_tol=CLOSE):
                yield Fit(
                    f"the gradient is {text}",
                    lambda m, value=value: value(m) * m.expected,
                    fix,
                    mend,
                    sized=True,
                    ambiguous=chance,
                )
        yield Fit(
            f"the gradient is {said(factor)} times what it should be",
            lambda m: factor * m.expected,
            undone(factor),
            sized=True,
            ambiguous=chance,
        )


def ratio(mismatch: Mismatch) -> float | None:
    """Return the one factor between got and expected, or None where there is none, or it is 0, 1 or -1."""
    expected, got = mismatch.expected.flatten(), mismatch.got.flatten()
    if expected.numel() == 0 or not bool(torch.isfinite(got.abs()).all()):
        return None
    at = int(expected.abs().argmax())
    if expected[at] == 0:
        return None
    value = (got[at] / expected[at]).item()
    if isinstance(value, complex):
        if abs(value.imag) > 1e-9 * abs(value.real):
            return None
        value = value.real
    return value if value and abs(abs(value) - 1) > 1e-9 else None


def named(mismatch: Mismatch) -> Iterator[Named]:
    """Yield constants with their names, signed both ways, and what mends a gradient: numbers, sizes, and their inverses and roots."""
    for c in CONSTANTS:
        for factor in (c, -c):
            yield Named(f"{said(factor)} times what it should be", lambda m, factor=factor: factor, undone(factor), _written(factor))
    for tensors in (mismatch.arguments, mismatch.outputs):
        for path, tensor in tensors.items():
            sizes = {f"the size of {path}": (tensor.numel(), None), **{f"size {i} of {path}": (n, i) for i, n in enumerate(tensor.shape)}}
            for label, (count, dim) in sizes.items():
                if count > 1:
                    for sign in ("", "-"):
                        yield from _powers(f"N = {count} ({label})", path, dim, sign)


def _written(factor: float) -> str | None:
    if abs(factor) in ROOTS.values():
        return None
    sign = "-" if factor < 0 else ""
    return f"{sign}returned / {abs(factor):g}" if abs(factor) > 1 else f"{sign}returned * {1 / abs(factor):g}"


def _powers(label: str, path: str, dim: int | None, sign: str) -> Iterator[Named]:
    def count(m: Mismatch, power: float) -> float:
        tensor = m.arguments.get(path, m.outputs.get(path))
        if tensor is None or (dim is not None and dim >= tensor.dim()):
            return math.nan
        size = float(tensor.numel() if dim is None else tensor.shape[dim]) ** power
        return -size if sign else size

    size = f"{path}.numel()" if dim is None else f"{path}.shape[{dim}]"
    for number, power, root in (("N", 1.0, ""), ("sqrt(N)", 0.5, " ** 0.5")):
        yield Named(
            f"{sign}{number} times what it should be, {label}",
            lambda m, power=power: count(m, power),
            f"divide the gradient by {sign}{number}, {label}",
            f"{sign}returned / {size}{root}",
        )
        yield Named(
            f"{sign}1/{number} times what it should be, {label}",
            lambda m, power=power: count(m, -power),
            f"multiply the gradient by {sign}{number}, {label}",
            f"{sign}returned * {size}{root}",
        )


class ConstantFactorInPart(Hypothesis):
    """A constant factor is missing in some slices only: the off-diagonal entry that stands twice in a symmetric form, one of several parameters."""

    name = "constant-factor"
    rank = 13

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        got, expected = mismatch.got, mismatch.expected
        if got.is_complex() or not bool(torch.isfinite(got).all()):
            return
        wrong = (got - expected).abs() > AGREES * (expected.abs().max() if expected.numel() else 1.0)
        for dim in range(expected.dim()):
            lines = wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1).any(1)
            hit = lines.nonzero().flatten()
            if hit.numel() in (0, lines.numel()):
                continue
            parts, rights = got.index_select(dim, hit), expected.index_select(dim, hit)
            at = rights.abs().argmax()
            factor = float(parts.flatten()[at] / rights.flatten()[at]) if bool(rights.any()) else 0.0
            if factor:
                where = ", ".join(map(str, hit.tolist()[:6]))
                yield Fit(
                    f"the gradient of the slices {where} along dim {dim} is {said(factor)} times what it should be; the rest is right",
                    lambda m, dim=dim, hit=hit, factor=factor: _scaled(m.expected, dim, hit, factor),
                    undone(factor, "these entries"),
                )


class ConstantFactorOfOutput(Hypothesis):
    """The contribution of one output has a wrong constant factor."""

    name = "constant-factor"
    rank = 14

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, factor in coefficients(mismatch).items():
            if abs(factor) > AGREES and abs(factor - 1) > AGREES:
                yield Fit(
                    f"what {path} contributes is {said(factor)} times what it should be; the rest is right",
                    lambda m, path=path, factor=factor: combined(m, {path: factor}),
                    undone(factor, f"the term with grad_output of {path}"),
                )


def _scaled(expected: Tensor, dim: int, hit: Tensor, factor: float) -> Tensor | None:
    if expected.shape[dim] <= int(hit.max()):
        return None
    return expected.index_copy(dim, hit, factor * expected.index_select(dim, hit))
