"""Simple expressions of an op's arguments, outputs and cotangents: what formulas are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..mismatch import Mismatch

Term = Callable[[Mismatch], Tensor | None]


def _sided(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return `function`, or NaN for complex tensors, which have no order."""
    return lambda t: torch.full_like(t, torch.nan) if t.is_complex() else function(t)


FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "{}": lambda t: t,
    "2 * {}": lambda t: 2 * t,
    "3 * {}": lambda t: 3 * t,
    "{} ** 2": torch.square,
    "{} ** 3": lambda t: t**3,
    "1 / {}": torch.reciprocal,
    "1 / {} ** 2": lambda t: t.reciprocal().square(),
    "exp({})": torch.exp,
    "sin({})": torch.sin,
    "cos({})": torch.cos,
    "tanh({})": torch.tanh,
    "sigmoid({})": torch.sigmoid,
    "(1 - {})": lambda t: 1 - t,
    "(1 + {})": lambda t: 1 + t,
    "(1 - {} ** 2)": lambda t: 1 - t * t,
    "{} * (1 - {})": lambda t: t * (1 - t),
    "sigmoid({}) * (1 - sigmoid({}))": lambda t: torch.sigmoid(t) * (1 - torch.sigmoid(t)),
    "(1 - tanh({}) ** 2)": lambda t: 1 - torch.tanh(t).square(),
    "({} > 0)": _sided(lambda t: (t > 0).to(t.dtype)),
    "sign({})": torch.sgn,
    "abs({})": lambda t: t.abs().to(t.dtype),
}


def operands(mismatch: Mismatch) -> dict[str, Callable[[Mismatch], Tensor]]:
    """Return every tensor that a formula may use, by the name a reader knows it under."""
    found: dict[str, Callable[[Mismatch], Tensor]] = {}
    for path in mismatch.arguments:
        found[path] = lambda m, path=path: m.arguments[path]
    for path in mismatch.outputs:
        found[path] = lambda m, path=path: m.outputs[path]
    return found


def factors(mismatch: Mismatch) -> Iterator[tuple[str, Term]]:
    """Yield simple functions of one operand: ``x``, ``2 * x``, ``sigmoid(x)``, ``output * (1 - output)``."""
    for name, operand in operands(mismatch).items():
        for pattern, function in FACTORS.items():
            yield pattern.replace("{}", name), lambda m, function=function, operand=operand: function(operand(m))
    for name in mismatch.numbers:
        yield name, lambda m, name=name: torch.tensor(m.numbers[name], dtype=torch.float64)
        yield f"1 / {name}", lambda m, name=name: torch.tensor(1 / m.numbers[name], dtype=torch.float64) if m.numbers[name] else None


def cotangent(mismatch: Mismatch) -> Tensor | None:
    """Return the only cotangent, or None where there are several."""
    return next(iter(mismatch.cotangents.values())) if len(mismatch.cotangents) == 1 else None


def times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the broadcast product, or None where shapes do not allow it."""
    if a is None or b is None:
        return None
    try:
        return a * b
    except RuntimeError:
        return None
