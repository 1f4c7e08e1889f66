"""What a call gave, and where another call gave something else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..report.finding import JSON
from . import tolerance
from .evaluate import Evaluator, Outcome
from .keeping import shown
from .picture import differences, picture
from .tensors import differentiable, same
from .words import gradient_name

RETURNED = "a gradient that backward returned"


@dataclass(slots=True)
class Call:
    """One forward and backward: what came back, and copies of it made at once."""

    outcome: Outcome
    outputs: list[Tensor]
    gradients: list[Tensor | None]
    copies: list[Tensor | None]
    returned: list[tuple[Tensor, Tensor]]


def changed_in(evaluator: Evaluator, got: Call, expected: Call) -> tuple[str, str, str] | None:
    """Where outputs or gradients of two calls differ by more than rounding: what, the entry there, and what it was."""
    return output_gap(got, expected) or value_gap(got, expected) or gradient_gap(evaluator, got.copies, expected.copies)


def value_gap(got: Call, expected: Call) -> tuple[str, str, str] | None:
    """Where outputs of the same shapes differ by more than rounding."""
    for path, a, b in zip(got.outcome.paths, got.outputs, expected.outputs, strict=False):
        if differentiable(a) and not same(a, b) and (far := _far(a, b)) is not None:
            return path, *far
    return None


def overwritten_of(evaluator: Evaluator, call: Call) -> str:
    """What has changed since the call of what it returned; empty where nothing has."""
    for path, now, then in zip(call.outcome.paths, call.outcome.outputs, call.outputs, strict=True):
        if not same(now.detach(), then):
            return path
    for leaf, now, then in zip(evaluator.wanted, call.gradients, call.copies, strict=True):
        if not same(now, then):
            return gradient_name(leaf.path)
    return "" if all(same(now, then) for now, then in call.returned) else RETURNED


def gradient_gap(evaluator: Evaluator, got: list[Tensor | None], expected: list[Tensor | None]) -> tuple[str, str, str] | None:
    """Where gradients differ by more than rounding, in shape or in dtype."""
    for leaf, a, b in zip(evaluator.wanted, got, expected, strict=True):
        if same(a, b):
            continue
        name = gradient_name(leaf.path)
        if a is None or b is None:
            return name, _kind(a), _kind(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return name, _kind(a), _kind(b)
        if (far := _far(a, b)) is not None:
            return name, *far
    return None


def _far(a: Tensor, b: Tensor) -> tuple[str, str] | None:
    """The entries that differ most, where they differ by more than rounding."""
    error = torch.nan_to_num((a - b).abs(), nan=torch.inf)
    at = int(error.argmax()) if error.numel() else 0
    if not error.numel() or float(error.flatten()[at]) <= tolerance.linear(a.dtype, float(torch.nan_to_num(b.abs()).max()), a.numel()):
        return None
    return f"{a.flatten()[at].item():.6g}", f"{b.flatten()[at].item():.6g}"


def picture_of(evaluator: Evaluator, name: str, got: list[Tensor | None], expected: list[Tensor | None]) -> dict[str, JSON]:
    """The attachment that shows where one gradient differs."""
    a, b = next((a, b) for leaf, a, b in zip(evaluator.wanted, got, expected, strict=True) if gradient_name(leaf.path) == name)
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return {}
    return picture(name, differences(a, b), tolerance.linear(a.dtype, float(torch.nan_to_num(b.abs()).max()), a.numel()))


def output_gap(got: Call, expected: Call) -> tuple[str, str, str] | None:
    """Where outputs differ in shape or in dtype."""
    for path, a, b in zip(got.outcome.paths, got.outputs, expected.outputs, strict=False):
        if a.dtype != b.dtype or a.shape != b.shape:
            return path, _kind(a), _kind(b)
    return None


def _kind(t: Tensor | None) -> str:
    return "None" if t is None else shown(t)
