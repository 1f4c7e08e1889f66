"""`watch`: sizes of outputs and gradients of a running program, and where NaN or Inf first appears."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from .. import _compat
from ..capture.frames import calling_frame
from ..report.clean import clean
from .files import write_form
from .watch_calls import Call, Gradients, RandomState, kind_of, outputs_of, random_state
from .watch_faults import Fault, shown
from .watch_hooks import Hook
from .watch_look import Look, Row
from .watch_replay import REPLAYS, locate
from .watch_steps import StepStats
from .watch_text import watch_section, watch_text

KEPT_STEPS = 10_000
WAITING_CALLS = 32
_AFTER_BACKWARD = _compat.after_backward()
LOCATED_FAULTS = 10


class Watch:
    """A running watch. Print it for the steps so far; `close` ends it, as the end of a `with` block does.

    Attributes:
        steps: The last 10,000 steps: norms of outputs and gradients.
        faults: Where NaN or Inf first appeared; once for each time that a step was in order before.
        looks: For the steps that were looked at in full, what each submodule gave and received.
    """

    def __init__(self, modules: tuple[torch.nn.Module, ...], every: int, on_fault: Callable[[Fault], object]) -> None:
        self.faults: list[Fault] = []
        self.steps: deque[StepStats] = deque(maxlen=KEPT_STEPS)
        self.looks: dict[int, tuple[Row, ...]] = {}
        self.names = [clean(type(module).__name__, limit=80) for module in modules]
        self.begun = 0
        self._every, self._on_fault = every, on_fault
        self._live: list[Call] = []
        self._arrived: list[Call] = []
        self._queued = self._ended = self._sick = False
        self._watched = [_Watched(self, module) for module in modules]
        self._alone = self._watched[0].gradients if len(modules) == 1 else None
        self._look = Look(modules[0]) if every else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Look at what is still open, and take every hook off the modules."""
        for watched in self._watched:
            watched.remove()
        if self._look is not None:
            self._look.remove()
        self._settle()
        self._watched, self._look = [], None

    def note(self, call: Call, result: Any) -> None:
        """Note what a call returned."""
        if self._ended or len(self._live) >= WAITING_CALLS:
            self._settle()
        self._queued = False
        outputs = outputs_of(result)
        call.keep(outputs)
        if not self._live:
            self.begun += 1
        if call.grad_mode and call.listen(outputs, self._arrive):
            self._live.append(call)
        elif not math.isfinite(call.norm):
            self._examine([call], self.begun)

    def _arrive(self, call: Call, output: int, cotangent: Tensor) -> None:
        call.cotangents[output] = cotangent
        self._arrived.append(call)
        if not self._queued and not REPLAYS:
            self._queued = True
            _AFTER_BACKWARD(self._finish)

    def _finish(self) -> None:
        """Count a step when its backward has ended."""
        self._queued, self._ended = False, True
        calls, self._arrived = self._arrived, []
        norms = self._alone.norms_with(calls[0].small) if self._alone is not None and len(calls) == 1 else None
        if norms is None:
            self._measure(calls)
            return
        self._sick = False
        self.steps.append(StepStats(self.begun, *norms))
        if self._every:
            self._look_at(self.begun)

    def _measure(self, calls: list[Call]) -> None:
        """Count a step whose norms are asked for at once: one of many or large tensors, or one in which NaN or Inf is."""
        step = self.begun
        gradient = self._gradient()
        output = calls[-1].norm
        self.steps.append(StepStats(step, gradient, output))
        if self._every:
            self._look_at(step)
        if math.isfinite(gradient or 0.0) and math.isfinite(output) and not any(call.is_bad_at_arguments() for call in calls):
            self._sick = False
        else:
            self._examine([call for call in self._live if call in calls or not math.isfinite(call.norm)], step)

    def _gradient(self) -> float | None:
        found = [norm for watched in self._watched if (norm := watched.gradients.norm()) is not None]
        return found[0] if len(found) == 1 else math.hypot(*found) if found else None

    def _look_at(self, step: int) -> None:
        """Keep what was seen of this step in full, and prepare for the next one that is looked at."""
        if self._look is not None:
            self._look.remove()
            self.looks[step] = self._look.rows()
            self._look = None
        if step % self._every == 0 and self._watched:
            self._look = Look(self._watched[0].module)

    def _settle(self) -> None:
        """Forget the calls of the step before; look first at those that no backward came to."""
        calls, self._live, self._ended = self._live, [], False
        waiting = [call for call in calls if not call.cotangents and not math.isfinite(call.norm)]
        if waiting:
            self._examine(waiting, self.begun)

    def _examine(self, calls: list[Call], step: int) -> None:
        """Find where NaN or Inf came from, once for each time that it came."""
        if self._sick or len(self.faults) >= LOCATED_FAULTS:
            return
        fault = _first([fault for call in calls if (fault := _located(call)) is not None])
        if fault is None:
            return
        self._sick = True
        self.faults.append(replace(fault, step=step))
        self._on_fault(self.faults[-1])

    def __str__(self) -> str:
        return watch_text(self)

    def __repr__(self) -> str:
        return f"<pullback.Watch of {', '.join(self.names)}, {len(self.steps):,} steps, {len(self.faults)} faults>"

    def to_text(self) -> str:
        """Return the steps, the last one that was looked at in full, and the faults as text."""
        return watch_text(self)

    def to_json(self) -> str:
        """Return the same as JSON, every kept step and every full look."""
        return json.dumps(watch_section(self))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends with .json or .txt.

        Raises:
            ValueError: for another ending.
        """
        write_form("Watch", {".json": self.to_json, ".txt": self.to_text}, path)


class _Watched:
    """One module and the hooks on it: one behind its forward, and one before it that keeps the random state."""

    def __init__(self, watch: Watch, module: torch.nn.Module) -> None:
        self.module = module
        self.parameters: list[Tensor] = [p for p in module.parameters() if not torch.nn.parameter.is_lazy(p) and not p.is_inference()]
        self.gradients = Gradients(self.parameters)
        self._watch = watch
        self._random: RandomState | None = None
        self._handles = [
            module.register_forward_pre_hook(Hook(self._before), prepend=True),
            module.register_forward_hook(Hook(self._after), with_kwargs=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not REPLAYS and not torch.compiler.is_compiling():
            self._random = random_state(self.parameters)

    def _after(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if REPLAYS or torch.compiler.is_compiling() or module is not self.module:
            return
        frame = calling_frame(sys._getframe(1))
        self._watch.note(Call(module, args, kwargs, self.parameters, frame, self._random), result)


def watch(*modules: torch.nn.Module, every: int = 100, on_fault: Callable[[Fault], object] | None = None) -> Watch:
    """Watch modules of a running program: norms at every step, and the operation and line where NaN or Inf first appears.

    In the steady state a step costs two hooks and the norms of output and gradients. Only when they are not finite is the call made once more, on
    a copy of the module that shares the parameters and has buffers of its own, with the arguments, grad mode, autocast and torch random state of the
    call; there every operation is looked at. Outputs, gradients, buffers and random state of the program stay what they are without a watch.

    Args:
        *modules: The model; and what follows it, such as a loss module, if that is to be looked into as well.
        every: Look at every so many steps in full: what each submodule gave and received. 0: never.
        on_fault: Is called with each `Fault` at the end of the backward, before an optimizer moves the parameters; it may raise. Default: print it to
            standard error.

    Returns:
        A `Watch`, which is a context manager.

    Raises:
        TypeError: if what is given is not a module.
        ValueError: if `every` is negative, or no module is given.

    Example:
        >>> import torch, pullback as pb
        >>> class Model(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x.abs().sqrt().sum()
        >>> model, faults = Model(), []
        >>> with pb.watch(model, on_fault=faults.append):
        ...     model(torch.tensor([4.0, 0.0], requires_grad=True)).backward()
        >>> [(fault.kind, fault.phase, fault.op) for fault in faults]
        [('Inf', 'backward', 'SqrtBackward0')]
    """
    if not modules:
        raise ValueError("watch needs a module: pb.watch(model)")
    for module in modules:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"watch takes torch.nn.Module, got {type(module).__name__}: put the code into the forward of a module")
    if every < 0:
        raise ValueError(f"every is how many steps lie between two that are looked at in full, at least 0; got {every}")
    return Watch(modules, every, _print if on_fault is None else on_fault)


def _located(call: Call) -> Fault | None:
    kind = kind_of(call.gradients()) or ("NaN" if math.isnan(call.norm) else "Inf" if math.isinf(call.norm) else "")
    if not kind:  # the square of a large number is infinite
        return None
    if not call.unchanged():
        return Fault(
            kind, "unlocated", "", location=call.place, text="parameters or arguments were written since the call, which cannot be made again"
        )
    try:
        fault = locate(call)
        text = (
            "made again, everything is finite: gradients had it before this backward, or it depends on more than torch's random state or on what "
            "torch.compile made of the module"
        )
    except Exception as error:
        fault, text = None, f"the call cannot be made again: {type(error).__name__}: {clean(error, limit=200)}"
    if fault is None and kind == "Inf" and not kind_of(call.gradients()):
        return None
    return fault or Fault(kind, "unlocated", "", location=call.place, text=text)


def _first(faults: list[Fault]) -> Fault | None:
    """Return the fault that came first: of a forward before one of a backward, located before not."""
    order = ("parameter", "argument", "forward", "backward", "outside", "unlocated")
    return min(faults, key=lambda fault: order.index(fault.phase), default=None)


def _print(fault: Fault) -> None:
    with contextlib.suppress(OSError, ValueError):
        print("pullback: " + "\n".join(shown(fault)), file=sys.stderr, flush=True)
