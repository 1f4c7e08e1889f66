"""Recognise gradients that are another map on purpose: straight-through estimators, surrogates, gradient reversal and scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from . import numeric
from .evaluate import Evaluator, UserCodeError, differentiable
from .value import InputVerdict, spread

LARGE_MOVES = (0.5, 2.0, 8.0)
STEPS = 16
TRIES = 4
HALVINGS = 40
LEFT = 2.0**-20


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
    returned = [leaf.path for leaf in evaluator.wanted if any(_same_values(y, leaf.template) for y in outputs)]
    for verdict in wrong:
        template = next(leaf.template for leaf in evaluator.wanted if leaf.path == verdict.path)
        if verdict.path in returned:
            found[verdict.path] = f"forward returns {verdict.path} unchanged, bit for bit; backward is not the identity"
        elif not verdict.moves and not verdict.none and _steps(evaluator, verdict.path, template, seed):
            found[verdict.path] = f"forward is piecewise constant in {verdict.path}; backward returns a gradient that is not zero"
        elif jump_of(evaluator, verdict.path, template, seed):
            found[verdict.path] = (
                f"forward jumps as {verdict.path} moves (a rounding, sign or comparison); backward is not the derivative between jumps"
            )
    stepped = any("piecewise" in reason or "jumps" in reason for reason in found.values())
    for verdict in wrong:
        if stepped:
            found.setdefault(verdict.path, "forward jumps in another input: the Function is a surrogate")
        elif returned and not verdict.moves:
            found.setdefault(verdict.path, "forward returns another input unchanged and ignores this one: its gradient is injected")
    return found


def jump_of(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    """Return whether the forward jumps somewhere along a long move of one input.

    The move is cut into steps; in the step where an output changes most the halves are searched for the greater change, again and again. A change
    that stays while the step shrinks by 2^-40 is a jump; a steep but continuous forward changes less and less.
    """
    generator = torch.Generator().manual_seed(seed + 0x1EA9)
    direction = spread(template.shape, template.is_complex(), generator).to(template.dtype) * numeric.scale_of(template)

    def outputs_at(t: float) -> Tensor:
        return numeric.flat(evaluator.values({path: template + t * direction}))

    try:
        points = [i / STEPS for i in range(STEPS + 1)]
        values = [outputs_at(t) for t in points]
        if values[0].numel() == 0 or any(v.shape != values[0].shape or not bool(torch.isfinite(v).all()) for v in values):
            return False
        changes = torch.stack([(b - a).abs() for a, b in pairwise(values)])
        for flat_index in changes.flatten().topk(min(TRIES, changes.numel())).indices.tolist():
            step, element = divmod(flat_index, changes.shape[1])
            if _stays(outputs_at, points[step], points[step + 1], element, float(changes[step, element])):
                return True
    except (UserCodeError, RuntimeError):
        return False
    return False


def _stays(outputs_at: Callable[[float], Tensor], low: float, high: float, element: int, change: float) -> bool:
    """Whether one output element's change between two points is a jump somewhere between them."""
    first, last = float(outputs_at(low)[element]), float(outputs_at(high)[element])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        between = float(outputs_at(middle)[element])
        if abs(between - first) >= abs(last - between):
            high, last = middle, between
        else:
            low, first = middle, between
    return change > 0 and abs(last - first) > LEFT * change


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
