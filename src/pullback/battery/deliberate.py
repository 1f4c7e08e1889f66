"""Recognise gradients that are another map on purpose: straight-through estimators, surrogates, gradient reversal and scaling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import numeric
from .evaluate import Evaluator, UserCodeError, differentiable
from .value import InputVerdict, spread

LARGE_MOVES = (0.5, 2.0, 8.0)


def deliberate_inputs(evaluator: Evaluator, wrong: Sequence[InputVerdict], seed: int) -> dict[str, str]:
    """Return, for inputs whose gradient is not the derivative, why it looks deliberate.

    Args:
        evaluator: The call.
        wrong: The inputs whose value test failed.
        seed: Chooses the large moves.
    """
    found: dict[str, str] = {}
    if not wrong:
        return found
    outcome = evaluator.forward()
    outputs = [outcome.outputs[i] for i in outcome.carrying]
    for verdict in wrong:
        template = next(leaf.template for leaf in evaluator.wanted if leaf.path == verdict.path)
        if any(_same_values(y, template) for y in outputs):
            found[verdict.path] = f"forward returns {verdict.path} unchanged, bit for bit; backward is not the identity"
        elif not verdict.moves and not verdict.none and _steps(evaluator, verdict.path, template, seed):
            found[verdict.path] = f"forward is piecewise constant in {verdict.path}; backward returns a gradient that is not zero"
    if any("piecewise" in reason for reason in found.values()):
        for verdict in wrong:
            found.setdefault(verdict.path, "forward is piecewise constant in another input: the Function is a surrogate")
    return found


def _same_values(output: Tensor, template: Tensor) -> bool:
    if output.dtype != template.dtype or output.numel() != template.numel() or output.numel() == 0:
        return False
    return bool(torch.equal(output.detach().reshape(-1), template.reshape(-1)))


def _steps(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed + 0xDE11)
    try:
        here = evaluator.values()
        for size in LARGE_MOVES:
            move = size * numeric.scale_of(template) * spread(template.shape, template.is_complex(), generator).to(template.dtype)
            there = evaluator.values({path: template + move})
            if any(a.shape == b.shape and differentiable(a) and not torch.equal(a, b) for a, b in zip(here, there, strict=False)):
                return True
    except UserCodeError:
        return False
    return False
