"""The global random states of torch, numpy and Python, read and set together."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import torch

from .evaluate import FORWARD_SEED, Evaluator, generator_states

NAMES = ("torch", "numpy", "random")


@dataclass(frozen=True, slots=True)
class RandomStates:
    """One reading of every global generator, in a form that can be compared."""

    torch: bytes
    numpy: Any
    random: Any

    def differing(self, other: RandomStates) -> set[str]:
        """Return the names of the generators whose states differ."""
        return {name for name in NAMES if getattr(self, name) != getattr(other, name)}


def draws_outside_torch(evaluator: Evaluator) -> bool:
    """Return whether a forward draws from numpy's or Python's global generator, or from one among its arguments.

    Raises:
        UserCodeError: if forward raises.
    """
    numpy = sys.modules.get("numpy")
    random.seed(FORWARD_SEED)
    if numpy is not None:
        numpy.random.seed(FORWARD_SEED)
    before = read()
    arguments = evaluator.arguments()
    own = generator_states(arguments)
    evaluator.forward(arguments)
    return bool(before.differing(read()) - {"torch"}) or not all(map(torch.equal, own, generator_states(arguments)))


def read() -> RandomStates:
    """Return the present states."""
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else None
    packed = None if state is None else (state[1].tobytes(), *state[2:])
    return RandomStates(torch.default_generator.get_state().numpy().tobytes(), packed, random.getstate())
