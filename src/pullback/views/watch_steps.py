"""The steps of a watch: that their norms are finite is known at once, what they are is computed for many steps together."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

KEPT_STEPS = 10_000
WAITING_STEPS = 32


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: forwards of the module up to the end of a backward.

    Args:
        step: Its number, from 1.
        gradient: 2-norm of the gradients of all parameters, as the step left them; None where none has one.
        output: 2-norm of what the module returned last.
    """

    step: int
    gradient: float | None
    output: float


class Steps:
    """The last steps, some of them not measured yet."""

    def __init__(self) -> None:
        self._known: deque[StepStats] = deque(maxlen=KEPT_STEPS)
        self._waiting: list[tuple[int, Tensor, int]] = []

    def add(self, step: StepStats) -> None:
        """Add a step whose norms are known."""
        self._measure()
        self._known.append(step)

    def add_later(self, step: int, flat: Tensor, output: int) -> None:
        """Add a step by a vector of its own: its gradients, then the `output` elements of its output."""
        self._waiting.append((step, flat, output))
        if len(self._waiting) >= WAITING_STEPS:
            self._measure()

    def known(self) -> deque[StepStats]:
        """Return all of them, measured; this waits for the device."""
        self._measure()
        return self._known

    def _measure(self) -> None:
        waiting, self._waiting = self._waiting, []
        for (shape, _, _, output), group in itertools.groupby(waiting, _kind):
            alike = list(group)
            with torch.no_grad():
                rows = torch.stack([flat for _, flat, _ in alike])
                parts = rows.split([shape[0] - output, output], dim=1)
                norms = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], dim=1).tolist()
            self._known.extend(StepStats(step, *both) for (step, _, _), both in zip(alike, norms, strict=True))


def _kind(entry: tuple[int, Tensor, int]) -> tuple[torch.Size, torch.dtype, torch.device, int]:
    _, flat, output = entry
    return flat.shape, flat.dtype, flat.device, output
