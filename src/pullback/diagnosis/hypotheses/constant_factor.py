"""got = c · expected with a constant c that has a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import AGREES, Fit, Mismatch, has_size
from ._outputs import coefficients, combined

CONSTANTS = {"2": 2.0, "1/2": 0.5, "3": 3.0, "1/3": 1 / 3, "4": 4.0, "1/4": 0.25, "sqrt(2)": math.sqrt(2), "1/sqrt(2)": math.sqrt(0.5)}
Named = tuple[str, Callable[[Mismatch], float], str | None]
MENDS = {"2": "/ 2", "1/2": "* 2", "3": "/ 3", "1/3": "* 3", "4": "/ 4", "1/4": "* 4"}


class ConstantFactor(Hypothesis):
    """A factor is missing or applied twice: 2 of a square, 1/N of a mean, the batch size."""

    name = "constant-factor"
    rank = 12

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        factor = ratio(mismatch)
        if factor is None:
            return
        chance = has_size(mismatch, factor) or has_size(mismatch, factor**2)
        for name, value, mend in named(mismatch):
            if math.isclose(value(mismatch), factor, rel_tol=1e-6):
                yield Fit(
                    f"the gradient is {name} times what it should be",
                    lambda m, value=value: value(m) * m.expected,
                    f"multiply the gradient by {name.removeprefix('1/')}" if name.startswith("1/") else f"divide the gradient by {name}",
                    mend,
                    sized=True,
                    ambiguous=chance,
                )
        yield Fit(
            f"the gradient is {factor:.6g} times what it should be",
            lambda m: factor * m.expected,
            f"look for a factor of {1 / factor:.6g} that backward leaves out",
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
    pool: list[Named] = [(name, lambda m, c=c: c, f"returned {MENDS[name]}" if name in MENDS else None) for name, c in CONSTANTS.items()]
    for tensors in (mismatch.arguments, mismatch.outputs):
        for path, tensor in tensors.items():
            sizes = {f"the size of {path}": (tensor.numel(), None), **{f"size {i} of {path}": (n, i) for i, n in enumerate(tensor.shape)}}
            for label, (count, dim) in sizes.items():
                if count > 1:
                    pool.extend(_powers(f"N = {count} ({label})", path, dim))
    for name, value, mend in pool:
        yield name, value, mend
        yield f"-{name}", lambda m, value=value: -value(m), mend and mend.replace("returned", "-returned")


def _powers(label: str, path: str, dim: int | None) -> Iterator[Named]:
    def count(m: Mismatch) -> float:
        tensor = m.arguments.get(path, m.outputs.get(path))
        if tensor is None or (dim is not None and dim >= tensor.dim()):
            return math.nan
        return float(tensor.numel() if dim is None else tensor.shape[dim])

    size = f"{path}.numel()" if dim is None else f"{path}.shape[{dim}]"
    yield label, count, f"returned / {size}"
    yield f"1/{label}", lambda m: 1 / count(m), f"returned * {size}"
    yield f"sqrt of {label}", lambda m: math.sqrt(count(m)), f"returned / {size} ** 0.5"
    yield f"1/sqrt of {label}", lambda m: 1 / math.sqrt(count(m)), f"returned * {size} ** 0.5"


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
                    f"the gradient of the slices {where} along dim {dim} is {_readable(factor)} times what it should be; the rest is right",
                    lambda m, dim=dim, hit=hit, factor=factor: _scaled(m.expected, dim, hit, factor),
                    f"look for a factor of {_readable(1 / factor)} that these entries need",
                )


class ConstantFactorOfOutput(Hypothesis):
    """The contribution of one output has a wrong constant factor."""

    name = "constant-factor"
    rank = 14

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, factor in coefficients(mismatch).items():
            if abs(factor) > AGREES and abs(factor - 1) > AGREES:
                yield Fit(
                    f"what {path} contributes is {_readable(factor)} times what it should be; the rest is right",
                    lambda m, path=path, factor=factor: combined(m, {path: factor}),
                    f"multiply the term with grad_output of {path} by {_readable(1 / factor)}",
                )


def _readable(value: float) -> str:
    return next((name for name, constant in CONSTANTS.items() if math.isclose(constant, value, rel_tol=1e-9)), f"{value:.6g}")


def _scaled(expected: Tensor, dim: int, hit: Tensor, factor: float) -> Tensor | None:
    if expected.shape[dim] <= int(hit.max()):
        return None
    return expected.index_copy(dim, hit, factor * expected.index_select(dim, hit))
