"""Gradients that backward returned, beside the arguments of forward that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..capture.calls import resolve_target
from ..capture.observed_calls import BackwardCall
from .probe import Probe


@dataclass(frozen=True, slots=True)
class Slot:
    """One returned gradient.

    Args:
        name: The argument of forward, in the user's words.
        argument: Its value, or None where the Function was called inside a callable and its arguments are not known.
        gradient: What backward returned for it, untouched.
        needed: Whether the argument requires grad.
    """

    name: str
    argument: Any
    gradient: Any
    needed: bool


def slots(probe: Probe, call: BackwardCall) -> Iterator[Slot]:
    """Yield one slot for each gradient that one call of backward returned."""
    needed = call.context.needs_input_grad
    direct = probe.target.direct and probe.target.function is call.function
    names = resolve_target(call.function).positional(len(needed))
    values = dict(probe.native.named) if direct else {}
    if direct and not probe.native.kwargs:
        names = [name for name, _ in probe.native.named][: len(needed)] or names
    for name, gradient, is_needed in zip(names, call.gradients, needed, strict=False):
        yield Slot(name, values.get(name), gradient, is_needed)


def first_tensor(value: Any) -> Tensor | None:
    """Return `value` if it is a tensor."""
    return value if isinstance(value, Tensor) else None
