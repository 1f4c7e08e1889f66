"""Tell a refusal that the checked code makes on purpose from a crash."""

from __future__ import annotations

import contextlib
import linecache
import re
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _compat
from ..capture.frames import is_checkers, is_torchs
from .evaluate import Evaluator, UserCodeError

_MEMORY = re.compile(
    r"not enough memory|out of memory|can't allocate|cannot allocate|invalid buffer size|Storage size calculation overflowed", re.IGNORECASE
)
_TORCH = re.compile(r"Function (\w+Backward\d+) returned an invalid gradient")
_DATA = frozenset({"nonzero", "_unique", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "index", "bincount", "repeat_interleave"})
"""Operators whose results have a shape that depends on values."""
_DELIBERATE = re.compile(r"\s*(raise|assert)\b")


def refuses(error: UserCodeError) -> bool:
    """Return whether the checked code's own `raise` or `assert` made the error, or memory was short: neither is a crash."""
    if isinstance(error.error, MemoryError) or _MEMORY.search(str(error.error)):
        return True
    frames = [f for f in traceback.extract_tb(error.error.__traceback__) if not is_checkers(f.filename)]
    if not frames or is_torchs(frames[-1].filename):
        return False
    return bool(_DELIBERATE.match(linecache.getline(frames[-1].filename, frames[-1].lineno or 0)))


def inside_torch(error: UserCodeError) -> bool:
    """Return whether an assertion of torch's own failed, which says so: no argument may make that happen."""
    return "INTERNAL ASSERT FAILED" in str(error.error)


def torch_at_fault(error: UserCodeError, usual: Evaluator, empty: Evaluator, size: int) -> str | None:
    """Return the operator of torch that made backward raise at a size, or None where the checked code did.

    Either the engine rejected what the derivative of an operator returned, or an operator that backward calls returns another shape than its
    results have for `size` (torch.pixel_unshuffle returns an empty input as it is).

    Args:
        error: What was raised.
        usual: The call as in the sample, where backward runs.
        empty: The call at size 0, where backward raises.
        size: What is 0 there.
    """
    engine = _TORCH.match(str(error.error))
    if engine is not None:
        return engine[1]
    if "returned an invalid gradient" not in str(error.error):
        return None
    for before, now in zip(_calls(usual), _calls(empty), strict=False):
        if before.name != now.name or not _alike(before.given, now.given, size):
            return None
        if not _alike(before.returned, now.returned, size):
            return None if before.name in _DATA or before.settings != now.settings else f"torch.{before.name}"
    return None


Shapes = tuple[tuple[int, ...], ...]


class _Call(NamedTuple):
    """One call of an operator: the shapes of the tensors that it was given and returned, and what else it was given."""

    name: str
    given: Shapes
    returned: Shapes
    settings: str


class _ShapesSeen(_compat.dispatch_mode()):  # type: ignore[misc]
    """Notes the shapes that every operator takes and returns."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [*args, *(kwargs or {}).values()]
        settings = repr([v for v in given if not isinstance(v, Tensor)])
        self.calls.append(_Call(func._schema.name.partition("::")[2], _shapes(given), _shapes([result]), settings))
        return result


def _shapes(values: Iterable[Any]) -> Shapes:
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else (value,))]
    return tuple(tuple(v.shape) for v in flat if isinstance(v, Tensor))


def _calls(evaluator: Evaluator) -> list[_Call]:
    outcome = evaluator.forward()
    cotangents = [torch.ones_like(y) for y in outcome.live]
    with _ShapesSeen() as mode, contextlib.suppress(UserCodeError):
        evaluator.vjp(outcome, cotangents)
    return mode.calls


def _alike(usual: Shapes, empty: Shapes, size: int) -> bool:
    """Whether shapes are the same, apart from a 0 where `size` was."""
    pairs = zip(usual, empty, strict=False)
    same = all(len(a) == len(b) and all(n == m or (n % size == 0 and m == 0) for n, m in zip(a, b, strict=True)) for a, b in pairs)
    return len(usual) == len(empty) and same


def blames_torch(error: UserCodeError) -> bool:
    """Return whether the engine rejected what one of torch's own operators returned, inside the checked backward."""
    return bool(_TORCH.match(str(error.error)))
