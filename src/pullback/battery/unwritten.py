"""Memory that is returned although nobody wrote it: torch fills what it allocates with NaN, and the NaN that come out tell."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .. import _compat
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .tensors import copy_tensor, random_like
from .value import SIGNED
from .words import gradient_name


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Entries that hold what was in memory.

    Args:
        kind: Whether backward or forward returns them.
        name: The gradient or the output in words.
        path: The input whose gradient it is, or the output's path.
        entries: How many.
        of: Of how many.
    """

    kind: Literal["gradient", "output"]
    name: str
    path: str
    entries: int
    of: int


@contextmanager
def new_memory_is_nan() -> Iterator[None]:
    """Let torch fill the memory of torch.empty, new_empty, empty_like and resize_ with NaN (the largest number, for integers)."""
    setting: Any = torch.utils.deterministic
    before = (
        setting.fill_uninitialized_memory,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        setting.fill_uninitialized_memory = True
        _compat.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            setting.fill_uninitialized_memory = before[0]
            _compat.use_deterministic_algorithms(before[1], warn_only=before[2])


def unwritten_memory(probe: Probe, evaluator: Evaluator) -> list[Unwritten]:
    """Return what forward and backward hand out unwritten at the evaluator's inputs; nothing where either raises once memory is filled."""
    usual = evaluator.forward()
    cotangents = [random_like(y, probe.generator, SIGNED) for y in usual.live]
    before = evaluator.vjp(usual, [copy_tensor(c) for c in cotangents])
    try:
        with new_memory_is_nan():
            outcome = evaluator.forward()
            outputs = [y.detach() for y in outcome.outputs]
            after = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents]) if len(outcome.live) == len(cotangents) else []
    except UserCodeError:
        return []
    pairs = zip(outcome.paths, usual.outputs, outputs, strict=False)
    found = [Unwritten("output", path, path, *counts) for path, a, b in pairs if (counts := _new_nan(a.detach(), b)) is not None]
    if found:
        return found
    gradients = zip(evaluator.wanted, before, after, strict=False)
    return [Unwritten("gradient", gradient_name(leaf.path), leaf.path, *counts) for leaf, a, b in gradients if (counts := _new_nan(a, b)) is not None]


def _new_nan(before: Tensor | None, after: Tensor | None) -> tuple[int, int] | None:
    if before is None or after is None or before.shape != after.shape or not (after.is_floating_point() or after.is_complex()):
        return None
    new = int((torch.isnan(after) & ~torch.isnan(before)).sum())
    return (new, after.numel()) if new else None
