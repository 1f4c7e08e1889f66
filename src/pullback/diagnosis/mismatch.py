"""What a hypothesis sees: one wrong gradient with everything around it, and oracles for the right one elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

AGREES = 1e-6
"""Relative to the largest entry: two orders above what float64 gradients by different formulas differ by, four below a fault worth naming."""


class Vjp(Protocol):
    """The right gradient of one input at other values, for other cotangents or other numbers among the arguments."""

    def __call__(
        self,
        path: str,
        *,
        values: Mapping[str, Tensor] | None = None,
        cotangents: Mapping[str, Tensor] | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> Tensor | None: ...


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One wrong gradient.

    Args:
        path: The input whose gradient is wrong.
        got: What backward returned, in float64 or complex128, of the input's shape.
        expected: What it should have returned.
        arguments: Every floating or complex tensor argument by path.
        numbers: Every Python number among the arguments by path.
        outputs: The outputs by path.
        cotangents: What was handed to backward, by output path.
        gradients: The right gradients of all differentiated inputs by path.
        returned: What backward returned for all of them.
        vjp: The right gradient elsewhere.
        nudged: What backward returns for `path` with every input moved by a relative amount.
        cut: The gradient of `path` if the n-th intermediate of forward were a constant, with a description, or None past the last.
    """

    path: str
    got: Tensor
    expected: Tensor
    arguments: Mapping[str, Tensor]
    numbers: Mapping[str, float]
    outputs: Mapping[str, Tensor]
    cotangents: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    returned: Mapping[str, Tensor]
    vjp: Vjp
    cut: Callable[[int], tuple[str, Tensor] | None] = field(default=lambda n: None)
    nudged: Callable[[float], Tensor | None] = field(default=lambda by: None)


@dataclass(frozen=True, slots=True)
class Guess:
    """A cause, in words.

    Args:
        name: The hypothesis's name, ``"constant-factor"``.
        text: One sentence for the finding's cause.
        fix: What to change, where that can be said.
        certain: Whether the cause predicted what backward returned on fresh inputs too.
        mend: As in `Fit`.
    """

    name: str
    text: str
    fix: str | None = None
    certain: bool = False
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A hypothesis made concrete on one mismatch.

    Args:
        text: The cause in words.
        predict: What a backward with this fault returns, given any mismatch of the same op; None where it cannot tell.
        fix: What to change.
        mend: The right gradient as a Python expression in ``returned`` (what backward returns for this input now), ``returned.NAME`` (what it
            returns for another input, which then gets this one's), ``grad_output`` and the names of forward's arguments.
        sized: Whether it rests on a number, which may be one of the sample's sizes: where other sizes can be had it must hold there too.
        ambiguous: Whether a size of the sample does equal that number, so that without other sizes nothing is certain.
    """

    text: str
    predict: Callable[[Mismatch], Tensor | None]
    fix: str | None = None
    mend: str | None = None
    sized: bool = False
    ambiguous: bool = False


def agrees(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether two gradients are the same to within `AGREES` of their largest entry."""
    if a is None or b is None or a.shape != b.shape:
        return False
    if a.numel() == 0:
        return True
    scale = float(b.abs().max())
    if scale == 0.0:
        return float(a.abs().max()) == 0.0
    gap = float((a - b).abs().max())
    return gap <= AGREES * scale


def has_size(mismatch: Mismatch, number: float) -> bool:
    """Return whether a number, or its inverse, equals a size of an argument or output of more than one element."""
    tensors = (*mismatch.arguments.values(), *mismatch.outputs.values())
    sizes = {n for t in tensors for n in (*t.shape, t.numel())} - {0, 1}
    return any(abs(number) == n or abs(number) * n == 1 for n in sizes)


def sum_to(tensor: Tensor, shape: torch.Size) -> Tensor | None:
    """Return `tensor` summed over broadcast dimensions to `shape`, or None where that is impossible."""
    extra = tensor.dim() - len(shape)
    if extra < 0:
        return None
    if extra:
        tensor = tensor.sum(tuple(range(extra)))
    dims = [i for i, (have, want) in enumerate(zip(tensor.shape, shape, strict=True)) if want == 1 and have != 1]
    tensor = tensor.sum(dims, keepdim=True) if dims else tensor
    return tensor if tensor.shape == shape else None
