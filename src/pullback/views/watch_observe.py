"""Sees which operator makes the first NaN or Inf."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.calls import Function
from ..capture.frames import calling_frame
from ..capture.graph import function_of
from ..report.finding import Location
from . import measures
from .places import place_of
from .watch_calls import kind_of, outputs_of

_NARROW = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "asin", "acos", "acosh", "atanh"}
_NARROW |= {"reciprocal", "logit", "lgamma", "exp", "sinh", "cosh"}
_Mode: Any = _compat.dispatch_mode()
_CONSTANTS = re.compile(r"^_?(fill|full|masked_fill|scalar_tensor|new_|where|constant_pad|lift_fresh|index_put|copy|clone|detach)")


@dataclass(slots=True)
class Event:
    """One operation that made NaN or Inf."""

    kind: str
    op: str
    module: str
    place: Location | None
    text: str
    function: type[Function] | None
    constant: bool
    sources: list[Event] = field(default_factory=list)
    since: Location | None = None


class Observer(_Mode):
    """Sees every operator, and keeps those that made NaN or Inf out of finite values, or NaN out of Inf."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.modules: list[str] = []
        self._source: dict[int, Event] = {}
        self._alive: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = outputs_of(result) if isinstance(result, (Tensor, tuple, list)) else []
        kind = kind_of([tensor.detach() for tensor in made])
        if kind and not func.__name__.startswith(("empty", "new_empty")):
            self._note(func.__name__.partition(".")[0], kind, made, outputs_of((args, kwargs or {})))
        return result

    def _note(self, op: str, kind: str, made: list[Tensor], given: list[Tensor]) -> None:
        sources = list({id(event): event for tensor in given if (event := self._source.get(_compat.storage_id(tensor)))}.values())
        known = kind_of([tensor.detach() for tensor in given if not any(tensor is m for m in made)])
        if known == kind or (known and kind == "Inf"):
            event = sources[0] if sources else None
        else:
            event = _event(op, kind, made, given, self.modules, sources)
            self.events.append(event)
        for tensor in made:
            if event is not None:
                self._source[_compat.storage_id(tensor)] = event
                self._alive.append(tensor)

    def origin(self, kind: str, outputs: list[Tensor]) -> Event | None:
        """Return the first operation that made what is in the outputs."""
        waiting = [event for tensor in outputs if (event := self._source.get(_compat.storage_id(tensor)))]
        behind: list[Event] = []
        while waiting:
            event = waiting.pop()
            if not any(event is known for known in behind):
                behind.append(event)
                waiting += event.sources
        order = [event for event in self.events if any(event is known for known in behind)] or self.events
        same = [event for event in order if event.kind == kind]
        return next((event for event in same if not event.constant), next(iter(same or order), None))


def _event(op: str, kind: str, made: list[Tensor], given: list[Tensor], modules: list[str], sources: list[Event]) -> Event:
    frame = calling_frame(sys._getframe(2))
    bad = next(tensor for tensor in made if kind_of([tensor.detach()]) == kind)
    text = f"{amount(bad)} of {measures.value(bad.dtype, bad.shape)}" + _because(op.strip("_"), given)
    event = Event(
        kind, op.strip("_"), modules[-1] if modules else "", place_of(frame), text, _function_at(frame), bool(_CONSTANTS.match(op)), sources
    )
    event.since = next((source.place for source in sources if source.kind == "Inf"), None)
    return event


def _because(op: str, given: list[Tensor]) -> str:
    """Return what about the arguments explains it."""
    finite = [tensor.detach() for tensor in given if tensor.numel() and not tensor.is_complex()]
    if not finite:
        return ""
    if op in _NARROW:
        low, high = (float(value) for value in torch.aminmax(finite[0].nan_to_num().float()))
        return f", of arguments between {low:.3g} and {high:.3g}"
    if op == "div" and len(finite) > 1:
        zeros = int((finite[1] == 0).sum())
        return f", {measures.count(zeros, 'divisor')} of {finite[1].numel():,} zero" if zeros else ""
    return ""


def _function_at(frame: Any) -> type[Function] | None:
    """Return the custom Function one of whose methods a frame runs."""
    first = frame.f_locals.get("ctx") if frame is not None else None
    return function_of(first) if first is not None else None


def amount(tensor: Tensor) -> str:
    """Return how many elements are NaN and Inf: ``"3 NaN in 16"``."""
    nan, inf = int(tensor.isnan().sum()), int(tensor.isinf().sum())
    parts = [f"{count:,} {word}" for count, word in ((nan, "NaN"), (inf, "Inf")) if count]
    return " and ".join(parts) + f" in {tensor.numel():,}"
