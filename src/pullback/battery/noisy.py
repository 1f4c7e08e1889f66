"""The value test where the forward is noisy: many directions along the gradient itself, pooled, so that rounding averages out.

Along a random direction the signal of n entries grows with the root of n, as the noise does. Along the sign of the gradient it grows with n: an
error of 1 % in bfloat16 then stands out, though every single difference quotient is off by more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from . import numeric, tolerance
from .evaluate import Outcome

DRAWS = 24
_MOVES = (-2, -1, 1, 2)


class Test(Protocol):
    """What is needed of the value test."""

    generator: torch.Generator

    def draw(self) -> list[Tensor]: ...
    def evaluate(self, values: Mapping[str, Tensor] | None = None) -> Tensor: ...
    def forward(self) -> Outcome: ...
    def vjp(self, outcome: Outcome, cotangent: Sequence[Tensor], *, keep: bool = False) -> list[Tensor | None]: ...


@dataclass(frozen=True, slots=True)
class Pooled:
    """The mean relative error of a gradient over many directions.

    Args:
        got: Mean of the paired numbers that backward gives.
        expected: Mean of the difference quotients.
        allowed: Six standard errors of their difference, what halving the step changes, and a quarter of a rounding, in the same unit.
        unseen: The same relative to the gradient: an error of less than this part of it would not have been seen.
    """

    got: float
    expected: float
    allowed: float
    unseen: float

    @property
    def ok(self) -> bool:
        return abs(self.got - self.expected) <= self.allowed


def pooled(test: Test, path: str, index: int, x: Tensor, noise: float) -> Pooled | None:
    """Return the pooled comparison for one input, or None where backward gives no gradient or one that is zero.

    Args:
        test: The value test.
        path: Which input.
        index: Its place among the gradients.
        x: Its value.
        noise: Relative noise of the forward.

    Raises:
        UserCodeError: if the op raises.
    """
    step = tolerance.noisy_step(noise) * numeric.scale_of(x)
    rows = []
    for _ in range(DRAWS):
        cotangent = test.draw()
        gradient = test.vjp(test.forward(), cotangent)[index]
        if gradient is None or not bool(torch.isfinite(gradient).all()):
            return None
        g, u = numeric.flat([gradient]), numeric.flat(cotangent)
        direction = _along(g, x, test.generator)
        rows.append([*_compare(test, path, x, direction, g, u, step), *_compare(test, path, x, direction, g, u, step / 2)])
    got, expected, size, _, _, half_size = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    half = torch.tensor([row[3] - row[4] for row in rows], dtype=torch.float64)
    scale = float(size.mean())
    if not 0 < scale < float("inf") or not bool(torch.isfinite(expected).all()):
        return None
    relative, relative_half = (got - expected) / scale, half / float(half_size.mean())
    spread = 6 * float(relative.std()) / DRAWS**0.5
    bias = 2 * abs(float(relative.mean() - relative_half.mean()))
    unseen = spread + bias + max(noise, tolerance.eps(x.dtype)) / 4
    return Pooled(float(got.mean()), float(expected.mean()), unseen * scale, unseen)


def _along(gradient: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    magnitude = torch.rand(gradient.shape, dtype=torch.float64, generator=generator) / 2 + 0.5
    signs = torch.where(gradient == 0, torch.randint(0, 2, gradient.shape, generator=generator).to(torch.float64) * 2 - 1, gradient.sign())
    direction = magnitude * signs
    return torch.view_as_complex(direction.reshape(*x.shape, 2)) if x.is_complex() else direction.reshape(x.shape)


def _compare(test: Test, path: str, x: Tensor, direction: Tensor, gradient: Tensor, cotangent: Tensor, step: float) -> tuple[float, float, float]:
    moved = {k: x + (k * step * direction).to(x) for k in _MOVES}
    paired = {k: cotangent @ test.evaluate({path: value}) for k, value in moved.items()}
    displacement = numeric.central4({k: numeric.flat([value]) for k, value in moved.items()}, step)
    along = gradient * displacement
    return float(along.sum()), float(numeric.central4(paired, step)), float(along.abs().sum())
