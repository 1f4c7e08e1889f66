"""What a watch keeps of every step."""

from __future__ import annotations

from typing import NamedTuple


class StepStats(NamedTuple):
    """One step: forwards of the module up to the end of a backward.

    Args:
        step: Its number, from 1.
        gradient: 2-norm of the gradients of all parameters, as the step left them; None where none has one.
        output: 2-norm of what the module returned last.
    """

    step: int
    gradient: float | None
    output: float
