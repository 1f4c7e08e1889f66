"""Tensors that a Function's methods read although nobody passed them: globals, closures, attributes."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .. import _compat, trees
from ..report.finding import Location
from .calls import Function, methods_of, relative_path
from .frames import is_readers
from .observed_calls import replaced
from .saved import reachable, saved_names

_LIFTS = ("lift_fresh", "lift_fresh_copy", "lift")
_SHAPE_ONLY = (
    *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
)


@dataclass(slots=True)
class Captured:
    """One tensor that was read without having been passed.

    Args:
        tensor: It.
        function: The Function whose method read it.
        method: ``"forward"``, ``"setup_context"``, ``"backward"``, ``"vjp"``.
        name: What the code calls it: ``"slope"``, ``"self.weight"``; empty if that cannot be told.
        location: Where it was first read.
        requires_grad: Whether it requires grad and is not detached before use.
    """

    tensor: Tensor
    function: type[Function]
    method: str
    name: str
    location: Location | None
    requires_grad: bool


@contextmanager
def captured_tensors(*functions: type[Function]) -> Iterator[list[Captured]]:
    """List the tensors that methods of the Functions read while the context is open, other than their arguments and what they computed themselves.

    Tensors in lists, dicts and dataclasses among the arguments, and attributes set on tensors, count as passed; what objects and closures hold does
    not.
    """
    watch = _Watch()
    with ExitStack() as stack:
        for function in dict.fromkeys(functions):
            for name in methods_of(function):
                stack.enter_context(replaced(function, name, watch.watched(function, name)))
        yield watch.found


class _Watch:
    def __init__(self) -> None:
        self.found: list[Captured] = []
        self.known: dict[int, Tensor] = {}
        self.first: dict[int, Tensor] = {}
        self.differentiable: set[int] = set()
        self.reported: set[int] = set()

    def watched(self, function: type[Function], name: str) -> Callable[..., Any]:
        method = getattr(function, name)
        takes_ctx = name != "forward" or function.setup_context is Function.setup_context

        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.know((args[1:] if takes_ctx else args, kwargs))
            with _Reads(self, function, name):
                result = method(*args, **kwargs)
            if takes_ctx and name in ("forward", "setup_context"):
                self.check_saved(function, name, args[0])
            return result

        return run

    def know(self, value: Any) -> None:
        for _, leaf in trees.leaves(value):
            if isinstance(leaf, Tensor):
                self.known[_compat.storage_id(leaf)] = leaf
                for attribute in vars(leaf).values():
                    if isinstance(attribute, Tensor):
                        self.known[_compat.storage_id(attribute)] = attribute

    def check_saved(self, function: type[Function], method: str, ctx: Any) -> None:
        saved = getattr(ctx, "to_save", None) or ()
        for name, tensor in zip(saved_names(function, len(saved)), saved, strict=True):
            if isinstance(tensor, Tensor) and _compat.storage_id(tensor) not in self.known:
                self.report(tensor, function, method, name, _method_place(getattr(function, method)))

    def see(self, function: type[Function], method: str, op: Any, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        name = op.overloadpacket.__name__
        unknown = [t for t in inputs if _compat.storage_id(t) not in self.known]
        if name in _LIFTS:
            self.know(unknown)
        elif op.is_view:
            for t in unknown:
                self.first.setdefault(_compat.storage_id(t), t)
                if t.requires_grad and name != "detach":
                    self.differentiable.add(_compat.storage_id(t))
        elif name not in _SHAPE_ONLY:
            for t in unknown:
                if _compat.storage_id(t) not in self.reported:
                    source = self.first.get(_compat.storage_id(t), t)
                    self.report(source, function, method, *_where(source), grad=t.requires_grad)
        given = {_compat.storage_id(t) for t in inputs}
        self.know([t for t in outputs if _compat.storage_id(t) not in given])

    def report(
        self, tensor: Tensor, function: type[Function], method: str, name: str, location: Location | None, *, grad: bool | None = None
    ) -> None:
        key = _compat.storage_id(tensor)
        if key in self.reported:
            return
        self.reported.add(key)
        needs = (tensor.requires_grad if grad is None else grad) or key in self.differentiable
        self.found.append(Captured(tensor, function, method, name, location, needs))


class _Reads(_compat.dispatch_mode()):  # type: ignore[misc]
    def __init__(self, watch: _Watch, function: type[Function], method: str) -> None:
        super().__init__()
        self.watch = watch
        self.function = function
        self.method = method

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [t for _, t in trees.leaves((args, kwargs or {})) if isinstance(t, Tensor)]
        outputs = [t for _, t in trees.leaves(result) if isinstance(t, Tensor)]
        self.watch.see(self.function, self.method, func, inputs, outputs)
        return result


def _where(tensor: Tensor) -> tuple[str, Location | None]:
    """Return the name under which the running user code holds `tensor`, and the line that reads it."""
    frame = sys._getframe(1)
    location: Location | None = None
    while frame is not None and frame.f_code is not _RUN_CODE:
        if is_readers(frame.f_code.co_filename):
            location = location or Location(relative_path(frame.f_code.co_filename), frame.f_lineno)
            name = _name_in(frame, tensor)
            if name:
                return name, location
        frame = frame.f_back
    return "", location


_RUN_CODE = next(c for c in _Watch.watched.__code__.co_consts if isinstance(c, types.CodeType) and c.co_name == "run")


def _name_in(frame: types.FrameType, tensor: Tensor) -> str:
    code = frame.f_code
    for name in code.co_freevars:
        found = _held(frame.f_locals.get(name), name, tensor)
        if found:
            return found
    for name in code.co_names:
        if name in frame.f_globals:
            found = _held(frame.f_globals[name], name, tensor)
            if found:
                return found
    for name in code.co_varnames:
        value = frame.f_locals.get(name)
        if value is not None and not isinstance(value, Tensor) and not trees.is_container(value):
            found = _held(value, name, tensor)
            if found:
                return found
    return ""


def _held(value: Any, name: str, tensor: Tensor) -> str:
    if isinstance(value, type):
        value = types.SimpleNamespace(**{k: v for k, v in vars(value).items() if isinstance(v, (Tensor, dict, list, tuple))})
    key = _compat.storage_id(tensor)
    for path, held in reachable(value, name):
        if held is tensor or _compat.storage_id(held) == key:
            return path
    return ""


def _method_place(method: Callable[..., Any]) -> Location | None:
    try:
        method = inspect.unwrap(method)
        return Location(relative_path(inspect.getsourcefile(method) or ""), inspect.getsourcelines(method)[1])
    except (OSError, TypeError):
        return None
