"""Mistakes that raise nothing: gradients that are added to those of the step before, and a step that moves nothing."""

from __future__ import annotations

import sys
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ... import _compat
from ...capture.frames import calling_frame
from .journal import Journal, Note
from .sight import line_at

LOOKED_AT = 4


@dataclass(slots=True)
class _Used:
    """A gradient that a step has used.

    Args:
        parameter: Whose it is.
        gradient: The tensor that holds it.
        version: How often it had been written.
        step: The step that used it.
        added: The first backward that added to it since, with nothing else written between.
    """

    parameter: weakref.ref[Tensor]
    gradient: weakref.ref[Tensor]
    version: int
    step: Note
    added: Note | None = None

    def current(self) -> Tensor | None:
        """Return the gradient, if the parameter still has it."""
        parameter = self.parameter()
        gradient = parameter.grad if parameter is not None else None
        return gradient if gradient is not None and gradient is self.gradient() else None


class Steps:
    """Sees the steps of all optimizers, and updates by hand.

    Args:
        journal: Where steps are noted.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._used: weakref.WeakKeyDictionary[Any, list[_Used]] = weakref.WeakKeyDictionary()
        self._by_hand: dict[int, _Used] = {}
        self._warned: set[tuple[str, int]] = set()
        self._handles: list[Any] = []

    def install(self) -> None:
        """See every step from now on."""
        self._handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        self._journal.after_backward.append(self._added)
        self._journal.on_update.append(self._updated)

    def remove(self) -> None:
        """See no more steps."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        place = _place(sys._getframe(1))
        if place is not None:
            added = next((used for used in self._used.get(optimizer, ()) if used.added is not None and used.current() is not None), None)
            if added is not None:
                self._warn(place, _accumulated("optimizer.zero_grad()", added))
            elif self._moves_nothing(optimizer):
                self._warn(place, self._nothing())
        self._journal.stepping = True

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._journal.stepping = False
        place = _place(sys._getframe(1))
        if place is None or torch.compiler.is_compiling():
            return
        note = self._journal.steps[optimizer] = Note(self._journal.next(), "step", place)
        parameters = [p for group in optimizer.param_groups for p in group["params"][:LOOKED_AT] if p.grad is not None][:LOOKED_AT]
        self._used[optimizer] = [_used(parameter, note) for parameter in parameters]

    def _added(self, backward: Note) -> None:
        """Take note of gradients that a backward has added to."""
        for uses in (*self._used.values(), list(self._by_hand.values())):
            for used in list(uses):
                gradient = used.current()
                writes = _compat.version_of(gradient) - used.version if gradient is not None else -1
                if writes == 1:
                    used.version += 1
                    used.added = used.added or backward
                elif writes != 0:
                    self._forget(uses, used)

    def _forget(self, uses: list[_Used], used: _Used) -> None:
        uses.remove(used)
        self._by_hand = {key: known for key, known in self._by_hand.items() if known is not used}

    def _updated(self, tensor: Tensor, note: Note) -> None:
        """Take an update of a leaf by hand as a step."""
        if tensor.grad is None:
            return
        known = self._by_hand.get(id(tensor))
        if known is not None and known.added is not None and known.current() is not None:
            self._warn(note.at, _accumulated("the gradient = None", known))
        self._by_hand[id(tensor)] = _used(tensor, note)

    def _moves_nothing(self, optimizer: Optimizer) -> bool:
        last = self._journal.steps.get(optimizer)
        backwards = self._journal.backwards
        if not backwards or (last is not None and backwards[-1].order < last.order):
            return False
        return all(p.grad is None for group in optimizer.param_groups for p in group["params"])

    def _nothing(self) -> list[str]:
        backward = self._journal.backwards[-1]
        cuts = [n for n in reversed(self._journal.cuts.values()) if n.order < backward.order and n.what in ("detach", "data", "no_grad")][:2]
        return [
            "optimizer.step() moves nothing: no parameter that it was given has a gradient after backward",
            f"  backward  {line_at(backward.place)}",
            *(f"  cut by    {line_at(note.place)}" for note in cuts),
            "  fix       give the optimizer the parameters of the model that the loss is computed with (after it is moved, copied or wrapped)",
        ]

    def _warn(self, at: tuple[str, int], lines: list[str]) -> None:
        """Warn once for a line."""
        if at not in self._warned:
            self._warned.add(at)
            warnings.warn_explicit("\n".join(lines), UserWarning, *at)


def _used(parameter: Tensor, step: Note) -> _Used:
    gradient = parameter.grad
    assert gradient is not None
    return _Used(weakref.ref(parameter), weakref.ref(gradient), _compat.version_of(gradient), step)


def _place(frame: Any) -> tuple[str, int] | None:
    reader = calling_frame(frame)
    return (reader.f_code.co_filename, reader.f_lineno) if reader is not None else None


def _accumulated(clear: str, used: _Used) -> list[str]:
    added = used.added
    assert added is not None
    return [
        "gradients accumulate across steps: backward added to gradients that the step before has used already",
        f"  backward  {line_at(added.place)}",
        *([f"  step      {line_at(used.step.place)}"] if used.step.at != added.at else []),
        f"  fix       {clear} after each step",
    ]
