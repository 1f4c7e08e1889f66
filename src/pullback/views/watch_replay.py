"""Finds the operation that made the first NaN or Inf of a call, by making the call once more on a private copy of the module."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.calls import backward_of, resolve_target
from ..capture.frames import is_readers
from ..capture.graph import function_of, leaf_of, walk
from ..report.clean import clean
from ..report.finding import Location
from ..trees import leaves, map_leaves
from .places import location
from .watch_calls import Call, can_hold_nan, kind_of, outputs_of
from .watch_faults import Fault
from .watch_observe import Observer, amount

_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+), in ', re.MULTILINE)
REPLAYS: list[Call] = []  # calls that are being made once more, so that no watch looks at them


def locate(call: Call) -> Fault | None:
    """Return where a call, or its backward, made the first NaN or Inf; None where it makes none when it is made again.

    Raises:
        Exception: whatever copying the module, or its code, raises.
    """
    given = _given(call)
    if given is not None:
        return given
    replay = _Replay(call)
    REPLAYS.append(call)
    try:
        with call.conditions(), _eager(), torch.autograd.set_detect_anomaly(True, check_nan=False):
            return replay.run()
    finally:
        REPLAYS.pop()


def _given(call: Call) -> Fault | None:
    for kind in ("NaN", "Inf"):
        for phase, named in (("parameter", call.module.named_parameters()), ("argument", leaves((*call.args, *call.kwargs.values())))):
            for name, tensor in named:
                if isinstance(tensor, Tensor) and can_hold_nan(tensor) and kind_of([tensor.detach()]) == kind:
                    name = name if phase == "parameter" else _argument_name(call, name)
                    if kind == "Inf" and phase == "argument":
                        continue
                    return Fault(kind, phase, name, location=call.place, text=f"{name} holds {amount(tensor)} before the module runs")
    return None


def _argument_name(call: Call, path: str) -> str:
    index = int(path[1 : path.index("]")])
    names = resolve_target(call.module.forward).positional(len(call.args))
    keys = [*names, *call.kwargs]
    return clean(keys[index] + path[path.index("]") + 1 :], limit=80)


class _Replay:
    """One call, made once more."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._module = private_copy(call.module)
        self._owners: dict[Any, str] = {}

    def run(self) -> Fault | None:
        """Return what happens first."""
        args, kwargs = map_leaves(_fresh, (self._call.args, self._call.kwargs))
        observer = Observer()
        with observer, self._named(observer):
            result = self._module(*args, **kwargs)
        outputs = outputs_of(result)
        kind = kind_of([output.detach() for output in outputs])
        if kind:
            return self._forward_fault(observer, kind, outputs)
        if not self._call.cotangents or not any(output.requires_grad for output in outputs):
            return None
        return self._backward(outputs)

    @contextlib.contextmanager
    def _named(self, observer: Observer) -> Iterator[None]:
        """Tell the observer which submodule runs, and keep which one made each node."""
        with contextlib.ExitStack() as stack:
            for name, module in self._module.named_modules():
                before = module.register_forward_pre_hook(lambda _module, args, name=name: self._enter(observer, name, args))
                after = module.register_forward_hook(lambda _module, _args, result, name=name: self._leave(observer, name, result))
                stack.callback(before.remove)
                stack.callback(after.remove)
            yield

    def _enter(self, observer: Observer, name: str, args: Any) -> None:
        self._own(args, observer.modules[-1] if observer.modules else "")
        observer.modules.append(name)

    def _leave(self, observer: Observer, name: str, result: Any) -> None:
        observer.modules.pop()
        self._own(result, name)

    def _own(self, value: Any, name: str) -> None:
        """Keep that what made the tensors of a value, as far as it is new, belongs to a submodule."""
        waiting = [leaf.grad_fn for _, leaf in leaves(value) if isinstance(leaf, Tensor) and leaf.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node not in self._owners:
                self._owners[node] = name
                waiting += [source for source, _ in node.next_functions if source is not None]

    def _forward_fault(self, observer: Observer, kind: str, outputs: list[Tensor]) -> Fault:
        event = observer.origin(kind, outputs)
        if event is None:
            return Fault(kind, "unlocated", "", location=self._call.place, text="an output holds it, but no operation was seen to make it")
        place = event.place or self._call.place
        return Fault(kind, "forward", event.op, event.module, place, event.text, since=event.since)

    def _backward(self, outputs: list[Tensor]) -> Fault | None:
        wanted = [(output, self._call.cotangents[i]) for i, output in enumerate(outputs) if i in self._call.cotangents and output.requires_grad]
        cotangents = [cotangent.detach() for _, cotangent in wanted]
        kind = kind_of([cotangent for cotangent in cotangents if can_hold_nan(cotangent)])
        if kind:
            return Fault(kind, "outside", "", location=self._call.place, text="the gradient that comes back to its output holds it already")
        nodes = walk([output for output, _ in wanted]).nodes
        observer, found = Observer(), []
        inputs = [leaf for leaf in map(leaf_of, nodes) if leaf is not None]
        handles = [node.register_hook(_checker(node, found)) for node in nodes if leaf_of(node) is None]
        try:
            with observer:
                torch.autograd.grad([output for output, _ in wanted], inputs, cotangents, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        if not found:
            return None
        return self._backward_fault(observer, *found[0])

    def _backward_fault(self, observer: Observer, node: Any, kind: str, text: str) -> Fault:
        function = function_of(node)
        made = _line_of(node) or self._call.place
        module = self._owners.get(node, "")
        if function is None:
            return Fault(kind, "backward", type(node).__name__, module, made, text)
        name = f"{clean(function.__name__, limit=80)}.{'vjp' if backward_of(function) is function.vjp else 'backward'}"
        event = next((event for event in observer.events if event.kind == kind and event.function is function), None)
        if event is not None:
            return Fault(kind, "backward", f"{event.op} in {name}", module, event.place, event.text, since=made)
        return Fault(kind, "backward", name, module, resolve_target(function).backward_location, text, since=made)


def private_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy that shares the memory of the parameters and nothing else: no gradient, no hook on a parameter, no buffer.

    What torch.compile made of a module is left out: the copy is of the module as it was written.
    """
    module = getattr(module, "_orig_mod", module)
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
    return copy.deepcopy(module, memo)


def _fresh(path: str, value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) and can_hold_nan(value) else value


def _eager() -> contextlib.AbstractContextManager[Any]:
    """A context in which compiled functions run as they are written; dynamo is not imported for it."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()


def _checker(node: Any, found: list[tuple[Any, str, str]]) -> Any:
    def check(gradients: tuple[Tensor | None, ...], cotangents: tuple[Tensor | None, ...]) -> None:
        given = [c.detach() for c in cotangents if c is not None and can_hold_nan(c)]
        made = [g.detach() for g in gradients if g is not None and can_hold_nan(g)]
        kind = kind_of(made)
        before = kind_of(given)
        if kind and (not before or (kind, before) == ("NaN", "Inf")):
            bad = next(g for g in made if kind_of([g]) == kind)
            found.append((node, kind, f"it received {before or 'a finite gradient'} and returned {amount(bad)}"))

    return check


def _line_of(node: Any) -> Location | None:
    """Return the reader's line that made a node."""
    stack = "".join(_compat.made_by(node))
    frames = [(match["path"], int(match["line"])) for match in _FRAME.finditer(stack)]
    return next((location(path, line) for path, line in reversed(frames) if is_readers(path)), None)
