"""One step of a call or of its backward, and what is said of a tensor that flows past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..report.clean import clean
from ..report.finding import Location
from . import measures

VALUE_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Stats:
    """A tensor at the moment it flowed past.

    Args:
        value: Dtype and shape.
        strides: Its strides, where it is not contiguous; else empty.
        requires_grad: Whether it requires grad.
        norm: Its 2-norm over finite elements.
        elements: How many elements it has.
        zeros: How many of them are zero.
        nan: How many are NaN.
        inf: How many are infinite.
    """

    value: str
    strides: str
    requires_grad: bool
    norm: float
    elements: int
    zeros: int
    nan: int
    inf: int

    def __str__(self) -> str:
        parts = [self.value]
        if self.strides:
            parts.append(f"strides {self.strides}")
        if self.elements > self.nan + self.inf:
            parts.append(f"norm {self.norm:.3g}" + (" of the finite" if self.nan or self.inf else ""))
        parts += [f"{count:,} of {self.elements:,} {word}" for count, word in ((self.zeros, "zero"), (self.nan, "NaN"), (self.inf, "Inf")) if count]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Args:
        number: Its place in the order, from 1.
        phase: ``"apply"`` or ``"backward"``.
        function: The Function concerned.
        call: Which call of a Function it belongs to, from 1.
        what: ``"argument"``, ``"context"``, ``"forward"``, ``"result"``, ``"saves"``, ``"attaches"``; ``"receives"``, ``"backward"``,
            ``"returns"``, ``"never runs"``; ``"raises"``.
        name: The argument, result or saved tensor concerned; may be empty.
        text: What there is to say.
        stats: Of the tensor concerned.
        seconds: How long it took, for ``"forward"`` and ``"backward"``.
        at: Seconds since the trace began.
        location: Where the method that runs is written.
        mark: What is remarkable: ``"zero"``, ``"NaN"``, ``"Inf"``, ``"None"`` or ``"cut"``; empty else.
    """

    number: int
    phase: str
    function: str
    call: int
    what: str
    name: str = ""
    text: str = ""
    stats: Stats | None = None
    seconds: float | None = None
    at: float = 0.0
    location: Location | None = None
    mark: str = ""


def stats_of(tensor: Tensor) -> Stats:
    """Return what there is to say about a tensor."""
    value = measures.value(tensor.dtype, tensor.shape)
    plain = tensor.layout == torch.strided and tensor.device.type != "meta"
    if not plain:
        return Stats(value, "", tensor.requires_grad, 0.0, 0, 0, 0, 0)
    strides = "" if tensor.is_contiguous() else str(tuple(tensor.stride()))
    with torch.no_grad():
        data = tensor.detach()
        nan, inf = int(data.isnan().sum()), int(data.isinf().sum())
        finite = torch.nan_to_num(torch.view_as_real(data.resolve_conj()) if data.is_complex() else data.to(torch.float64), 0.0, 0.0, 0.0)
        zeros = data.numel() - int(data.count_nonzero())
    return Stats(value, strides, tensor.requires_grad, float(finite.norm()), data.numel(), zeros, nan, inf)


def described(value: Any) -> dict[str, Any]:
    """Return the `stats` and `text` of a step about a value."""
    if isinstance(value, Tensor):
        stats = stats_of(value)
        return {"stats": stats, "text": "requires grad" if stats.requires_grad else ""}
    return {
        "stats": None,
        "text": clean(
            repr(value) if isinstance(value, (bool, int, float, str, type(None), tuple, list)) else type(value).__name__, limit=VALUE_LIMIT
        ),
    }


def kind_of(stats: Stats) -> str:
    """Return what is remarkable about a gradient: ``"NaN"``, ``"Inf"``, or ``"zero"`` where all of it is; empty else."""
    if stats.nan:
        return "NaN"
    if stats.inf:
        return "Inf"
    return "zero" if stats.elements and stats.zeros == stats.elements else ""


def mark_of(stats: Stats | None, received: list[Stats], needed: bool) -> str:
    """Return what became of the gradient here, that it was not before."""
    if stats is None:
        return "None" if needed else ""
    if stats.nan and not any(r.nan for r in received):
        return "NaN"
    if stats.inf and not any(r.inf for r in received):
        return "Inf"
    if stats.elements and stats.zeros == stats.elements and any(r.zeros < r.elements for r in received):
        return "zero"
    return ""


def told(steps: Iterable[Step]) -> set[str]:
    """Return what gradients have become: the marks, and what is remarkable about what was returned.

    Of several outputs, one that nothing uses receives zeros, which tells nothing.
    """
    backward = [step for step in steps if step.phase == "backward"]
    return {step.mark for step in backward} | {kind_of(step.stats) for step in backward if step.stats and step.what == "returns"}


def arrival_mark(stats: list[Stats], known: set[str]) -> str:
    """Return what became of the gradient in torch's own operations, where the steps before have `told` what is `known`, and it arrives like this.

    Zero is what all of it is; zeros behind a gradient that is None are told there.
    """
    kinds = {kind_of(own) for own in stats}
    if kinds == {"zero"}:
        return "" if known & {"zero", "None"} else "zero"
    return next((kind for kind in ("NaN", "Inf") if kind in kinds and kind not in known), "")
