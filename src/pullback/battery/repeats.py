"""Whether a call repeats bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .evaluate import BACKWARD_SEED, FORWARD_SEED, Evaluator, Outcome, UserCodeError, generator_states
from .tensors import copy_tensor, full_mantissas, random_like, same

UNEVEN = (1e-3, 1.0, 1e3)
UNEVEN_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Repeats:
    """Whether a call repeats bit for bit under a held random state, and whether it draws random numbers."""

    forward: bool
    backward: bool
    forward_draws: bool
    backward_draws: bool


def repeats(evaluator: Evaluator, cotangents: Sequence[Tensor], generator: torch.Generator) -> Repeats:
    """Return whether two evaluations under the same random state agree bit for bit, and who draws random numbers.

    Raises:
        UserCodeError: if the op raises at the given inputs.
    """
    before = torch.default_generator.manual_seed(FORWARD_SEED).get_state()
    arguments = evaluator.arguments()
    own = generator_states(arguments)
    first = evaluator.forward(arguments)
    draws_forward = not torch.equal(before, torch.default_generator.get_state()) or not all(map(torch.equal, own, generator_states(arguments)))
    gradients = vjp_or_none(evaluator, first, cotangents)
    before = torch.Generator().manual_seed(BACKWARD_SEED).get_state()
    draws_backward = bool(first.carrying) and not torch.equal(before, torch.default_generator.get_state())
    second = evaluator.forward()
    again = vjp_or_none(evaluator, second, cotangents)
    same_forward = len(first.outputs) == len(second.outputs) and all(map(same, first.outputs, second.outputs))
    same_backward = (gradients is None) == (again is None) and (gradients is None or again is None or all(map(same, gradients, again)))
    same_backward = same_backward and (gradients is None or _for_uneven_cotangents(evaluator, generator))
    return Repeats(same_forward, same_backward, draws_forward, draws_backward)


def vjp_or_none(evaluator: Evaluator, outcome: Outcome, cotangents: Sequence[Tensor]) -> list[Tensor | None] | None:
    """Return the gradients, an empty list where no output carries any, None where backward raises."""
    try:
        return evaluator.vjp(outcome, cotangents) if outcome.carrying else []
    except UserCodeError:
        return None


def _for_uneven_cotangents(evaluator: Evaluator, generator: torch.Generator) -> bool:
    """Whether gradients repeat where sums round: a changed order of summation rarely shows for cotangents of few digits and one size."""
    outcome = evaluator.forward()
    cotangents = [full_mantissas(random_like(y, generator, UNEVEN), generator) for y in outcome.live]
    found = [vjp_or_none(evaluator, evaluator.forward(), [copy_tensor(c) for c in cotangents]) for _ in range(UNEVEN_REPEATS)]
    present = [g for g in found if g is not None]
    return all(all(map(same, g, present[0])) for g in present[1:])
