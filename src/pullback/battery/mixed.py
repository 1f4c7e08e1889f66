"""Arguments of two precisions in one call, as weights kept in float32 beside activations of fewer digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .refusals import blames_torch, refuses
from .tensors import cast_tensor, copy_tensor

LIMIT = 4
"""How many inputs get another dtype in turn."""
LOW = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Mixed:
    """A call with inputs of two dtypes, which forward takes and backward does not.

    Args:
        said: Which input has which dtype.
        error: What backward raises.
    """

    said: str
    error: UserCodeError


def mixed_dtypes(probe: Probe) -> Iterator[Mixed]:
    """Yield calls with one input in bfloat16 among float32 ones, or the other way round, whose backward raises.

    Only where all outputs come out in bfloat16: promotion would give float32, so that forward casts, and means to take both.
    """
    full = probe.native.cast(torch.float32)
    if len(full.wanted) < 2 or any(leaf.template.is_complex() for leaf in full.wanted):
        return
    for others, own in ((torch.float32, LOW), (LOW, torch.float32)):
        for leaf in full.wanted[:LIMIT]:
            evaluator = full.cast(others).variant({leaf.path: cast_tensor(leaf.template, own)})
            error = _raised(probe, evaluator)
            if error is not None:
                names = [str(d).removeprefix("torch.") for d in (own, others)]
                yield Mixed(f"{leaf.path} in {names[0]} and the other inputs in {names[1]}", error)
                return


def _raised(probe: Probe, evaluator: Evaluator) -> UserCodeError | None:
    try:
        outcome = evaluator.forward()
    except UserCodeError:
        return None
    if not outcome.live or any(y.dtype is not LOW for y in outcome.live):
        return None
    try:
        evaluator.vjp(outcome, [copy_tensor(c) for c in probe.cotangents(outcome)])
    except UserCodeError as error:
        return None if refuses(error) or blames_torch(error) else error
    return None
