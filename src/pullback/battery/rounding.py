"""How far rounding alone moves a gradient: what a formula with few digits left gives cannot be told from what a wrong one gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from . import tolerance
from .evaluate import Evaluator, UserCodeError
from .other_rounding import ROUNDED, SALTS, OtherRounding
from .probe import Probe
from .single import narrow_inside
from .tensors import copy_tensor, random_like
from .value import InputVerdict

POINTS = (1, 2)
"""How many roundings the points lie away from the input: all on one side of it, so that a kink at the input does not count."""


def rounding_for(evaluator: Evaluator, path: str) -> float:
    """Return the rounding of one input's dtype, or of float32 where the op computes in it whatever it is given."""
    dtype = next(leaf.template.dtype for leaf in evaluator.wanted if leaf.path == path)
    return max(tolerance.eps(dtype), tolerance.eps(torch.float32) if narrow_inside(evaluator) else 0.0)


def rounded_away(probe: Probe, evaluator: Evaluator, wrong: InputVerdict, unit: float) -> bool:
    """Return whether rounding moves a gradient by as much as it is wrong: exp(1e12 · x) has no digits left.

    Either the results of every operator are rounded otherwise, or, since other code than torch's rounds as well, the input is.

    Args:
        probe: The case.
        evaluator: The call at which the gradient is wrong.
        wrong: How wrong it is.
        unit: Rounding of what machine epsilon may be to blame: that of the inputs, or of narrower numbers inside.
    """
    try:
        outcome = evaluator.forward()
        cotangents = probe.cotangents(outcome)
        return any(
            ROUNDED * _spread(found) >= wrong.error
            for found in (_inside(evaluator, wrong.path, cotangents, unit), *_beside(probe, evaluator, wrong.path, cotangents, unit))
        )
    except (UserCodeError, RuntimeError):
        return False


def _inside(evaluator: Evaluator, path: str, cotangents: Sequence[Tensor], unit: float) -> list[Tensor | None]:
    found = []
    for salt in SALTS:
        with OtherRounding(salt, unit):
            found.append(_gradient(evaluator, path, cotangents))
    return found


def _beside(probe: Probe, evaluator: Evaluator, path: str, cotangents: Sequence[Tensor], unit: float) -> Iterator[list[Tensor | None]]:
    x = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    generator = torch.Generator().manual_seed(probe.settings.seed + 13)
    for _ in range(len(SALTS)):
        moved = unit * x * random_like(x.real, generator, (1.0,))
        yield [_gradient(evaluator.variant({path: x + times * moved}), path, cotangents) for times in POINTS]


def _gradient(evaluator: Evaluator, path: str, cotangents: Sequence[Tensor]) -> Tensor | None:
    found = evaluator.vjp(evaluator.forward(), [copy_tensor(c) for c in cotangents])
    return next((g for leaf, g in zip(evaluator.wanted, found, strict=True) if leaf.path == path), None)


def _spread(gradients: Sequence[Tensor | None]) -> float:
    """Return by how much gradients differ, summed over their entries."""
    present = [g.detach() for g in gradients if g is not None]
    if len(present) < len(gradients) or any(g.shape != present[0].shape for g in present) or not present[0].numel():
        return 0.0
    return max(float((g - present[0]).abs().sum()) for g in present[1:])
