"""Arguments that forward only hands on to backward: a mask, a factor, a bound or a level of noise for the gradient."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from .evaluate import Evaluator, UserCodeError
from .tensors import all_same
from .value import ValueTest

NEUTRAL = (1.0, 0.0, 1e30)
"""A mask that changes nothing, no noise, and a bound that nothing reaches."""
_NOISE = re.compile(r"noise|sigma|std", re.IGNORECASE)
OTHER = 2.75
MOST = 3


def steered_by(evaluator: Evaluator, path: str, seed: int) -> str:
    """Return the values, as in ``"clip = 1e+30"``, with which the gradient of one input is right; empty where there are none.

    Only arguments that forward never looks at are set: whatever their values, its outputs are the same bit for bit. No derivative depends on them, so
    where backward does, its gradient is another one on purpose, and what is left of it when they change nothing can be compared. A single factor is
    none of them: forward may have forgotten it.

    Args:
        evaluator: The call.
        path: The input whose gradient is not the derivative.
        seed: Chooses directions and cotangents.
    """
    names = [name for name, value in evaluator.named if name != path and _only_handed_on(evaluator, name, value)]
    if not 0 < len(names) <= MOST:
        return ""
    given = dict(evaluator.named)
    for numbers in product(*(_neutral(name, given[name]) for name in names)):
        try:
            values = {name: _like(given[name], number) for name, number in zip(names, numbers, strict=True)}
            if ValueTest(evaluator.variant(values), seed=seed).careful(path).ok:
                return " and ".join(f"{name} = {number:g}" for name, number in zip(names, numbers, strict=True))
        except (UserCodeError, RuntimeError, StopIteration):
            continue
    return ""


def _neutral(name: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, Tensor) and value.numel() > 1:
        return NEUTRAL
    return (0.0, 1e30) if _NOISE.search(name) else (1e30,)


def _only_handed_on(evaluator: Evaluator, name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, Tensor)) or (isinstance(value, Tensor) and not _settable(value)):
        return False
    try:
        here = evaluator.values()
        return all(all_same(here, evaluator.variant({name: other}).values()) for other in _others(value))
    except (UserCodeError, RuntimeError):
        return False


def _settable(value: Tensor) -> bool:
    return value.layout is torch.strided and not value.is_complex() and value.numel() > 0


def _others(value: Any) -> Iterator[Any]:
    yield from (_like(value, number) for number in (*NEUTRAL, OTHER))


def _like(value: Any, number: float) -> Any:
    """A number, or a tensor full of it, of the type that `value` has; a bound that a whole number cannot hold is its own value."""
    if isinstance(value, Tensor):
        exact = value.dtype.is_floating_point or number in (0.0, 1.0)
        filled = torch.full_like(value.detach(), number) if exact else value.detach().clone()
        return filled.requires_grad_(value.requires_grad)
    return type(value)(number)
