"""What is called: a Function subclass, its `apply`, an op, or any callable; its argument names and where it is written."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from ..report.clean import clean
from ..report.finding import Location
from .library import library_op, op_behind, stand_in

Function = torch.autograd.Function
_FOLDER: ContextVar[str] = ContextVar("folder", default="")


@dataclass(frozen=True, slots=True)
class Target:
    """A resolved target.

    Args:
        call: What is invoked with the case's arguments.
        function: The `autograd.Function` subclass behind `call`, or None for a callable that uses some inside.
        subject: Qualified name, ``"pkg.mod.Class"``.
        name: Short name for messages, ``"Class"``.
        names: Parameter names of the call in order; a variadic one stands last with a ``*``.
        location: Where the class or callable is defined.
    """

    call: Callable[..., Any]
    function: type[Function] | None
    subject: str
    name: str
    names: tuple[str, ...]
    location: Location | None

    @property
    def direct(self) -> bool:
        """Whether the call is `function.apply` itself, so that arguments and gradients correspond one to one."""
        return self.function is not None and getattr(self.call, "__self__", None) is self.function

    @property
    def described(self) -> type[Function] | None:
        """The class that tells of the call's arguments one by one: the Function whose `apply` the call is, or what stands for a torch.library op."""
        if self.function is not None:
            return self.function if self.direct else None
        op = library_op(self.call)
        return stand_in(op) if op is not None and op.backward is not None else None

    @property
    def offers_setup_context(self) -> bool:
        """Whether torch.func can use the Function (forward without ctx, and setup_context)."""
        return self.function is not None and self.function.setup_context is not Function.setup_context

    @property
    def backward_name(self) -> str:
        return f"{self.name}.backward" if self.function else f"the backward of {self.name}"

    @property
    def backward_location(self) -> Location | None:
        """Where backward (or vjp) is defined; the target's own place if that has no source."""
        return _place(backward_as_written(self.function)) or self.location if self.function else self.location

    @property
    def forward_location(self) -> Location | None:
        return _place(forward_as_written(self.function)) or self.location if self.function else self.location

    def rule_of(self, path: str) -> Callable[..., Any] | None:
        """Return the rule that an op's author wrote for the gradient of the argument at `path`, or None where there is no such thing."""
        rules = getattr(self.function, "__pullback_rules__", {})
        return rules.get(path.split("[")[0].split(".")[0])

    def backward_name_of(self, path: str) -> str:
        """Return how messages name what computes the gradient of one argument: ``Swish.backward``, for an op ``muladd.vjp[x]``."""
        rule = self.rule_of(path)
        return self.backward_name if rule is None else rule.__qualname__

    def backward_location_of(self, path: str) -> Location | None:
        """Return where that is written."""
        rule = self.rule_of(path)
        return self.backward_location if rule is None else _place(rule)

    def positional(self, count: int) -> list[str]:
        """Return names for `count` positional arguments: ``x``, ``params[0]``; ``argument 3`` where there is no name."""
        return positional_names(self.names, count)


def positional_names(parameters: tuple[str, ...], count: int) -> list[str]:
    """Return names for `count` positional arguments of something with these parameters: ``x``, ``params[0]``, or ``argument 3`` without a name."""
    named = takewhile(lambda n: not n.startswith("*") or n.startswith("**"), parameters)  # behind *args, parameters go by keyword alone
    names = [n for n in named if not n.startswith("*")]
    rest = next((n.lstrip("*") for n in parameters if n.startswith("*") and not n.startswith("**")), None)
    extra = [f"{rest}[{i}]" if rest else f"argument {len(names) + i + 1}" for i in range(max(0, count - len(names)))]
    return (names + extra)[:count]


def _short(value: object) -> str:
    first, _, rest = repr(value).partition("\n")
    return clean(first, limit=60) + ("…" if rest else "")


def resolve_target(target: Any) -> Target:
    """Return what `target` means.

    Args:
        target: An `autograd.Function` subclass, its `apply`, an op with a ``function`` attribute, a torch.library op, a module or any callable.

    Raises:
        TypeError: if `target` cannot be called, naming what was given.
    """
    owner = getattr(target, "__self__", None)
    if isinstance(target, type) and issubclass(target, Function):
        return _of_function(target, target.apply)
    if isinstance(owner, type) and issubclass(owner, Function) and getattr(target, "__name__", "") == "apply":
        return _of_function(owner, owner.apply)
    if not callable(target) or isinstance(target, type):
        what = "an instance of this module" if _is_module_class(target) else "an autograd.Function subclass, its apply, an op or a callable"
        raise TypeError(f"pullback cannot check {_short(target)} of type {type(target).__name__}: pass {what}")
    op = library_op(target)
    if op is not None:
        return Target(target, None, op.name, op.short, op.arguments, _place(op.forward))
    function = getattr(target, "function", None)
    function = function if isinstance(function, type) and issubclass(function, Function) else None
    subject, name = _names(target)
    return Target(target, function, subject, name, parameter_names(target), _place(target))


def _is_module_class(target: Any) -> bool:
    return isinstance(target, type) and issubclass(target, torch.nn.Module)


def _of_function(function: type[Function], call: Callable[..., Any]) -> Target:
    names = forward_names(function)
    subject = f"{function.__module__}.{function.__qualname__}"
    return Target(call, function, subject, name_of(function), names, _place(function))


def name_of(function: type[Function]) -> str:
    """Return how messages name a Function class: by its own name, or by that of the torch.library op that torch generated it for."""
    op = op_behind(function)
    return function.__name__ if op is None else op.short


def forward_as_written(function: type[Function]) -> Callable[..., Any] | None:
    """Return the code of forward that its author wrote: the method, or the implementation of a torch.library op; None if that is not Python."""
    op = op_behind(function)
    return function.forward if op is None else op.forward


def backward_as_written(function: type[Function]) -> Callable[..., Any] | None:
    """Return the code of backward that its author wrote: the method, or what was registered for a torch.library op."""
    op = op_behind(function)
    return backward_of(function) if op is None else op.backward


def forward_names(function: type[Function]) -> tuple[str, ...]:
    """Return the names of what `apply` takes: forward's parameters without ctx, or those of the torch.library op that the class was generated for."""
    op = op_behind(function)
    if op is not None:
        return () if op.takes_lists else op.arguments
    names = parameter_names(function.forward)
    if function.setup_context is Function.setup_context:
        return names[1:] if names and not names[0].startswith("*") else names
    return names


def backward_of(function: type[Function]) -> Callable[..., Any]:
    """Return the method that computes gradients: `backward`, or `vjp` where only that is defined."""
    return function.vjp if function.vjp is not Function.vjp and function.backward is Function.backward else function.backward


def parameter_names(call: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of `call`, variadic ones with their stars; empty if it has no readable signature."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return ()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return tuple(stars.get(p.kind, "") + p.name for p in parameters)


def _names(target: Any) -> tuple[str, str]:
    named = target if hasattr(target, "__qualname__") else type(target)
    name = str(getattr(target, "__name__", None) or type(target).__name__)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}", name


def _place(thing: Any) -> Location | None:
    if isinstance(thing, functools.partial):
        thing = thing.func
    try:
        thing = inspect.unwrap(thing)
        if not (inspect.isclass(thing) or inspect.isroutine(thing)):
            thing = type(thing)
        path = inspect.getsourcefile(thing)
        lines, start = inspect.getsourcelines(thing)
    except (TypeError, OSError, ValueError):
        return None
    if path is None:
        return None
    keyword = ("class ",) if inspect.isclass(thing) else ("def ", "async def ")
    offset = next((i for i, line in enumerate(lines) if line.lstrip().startswith(keyword)), 0)
    return Location(relative_path(path), start + offset, 1, start + len(lines) - 1)


def relative_path(path: str) -> str:
    """Return `path` relative to the working directory, or to that of `paths_from_here`, where it lies inside it."""
    try:
        return str(Path(path).resolve().relative_to(_FOLDER.get() or os.getcwd()))
    except (ValueError, OSError):
        return path


@contextmanager
def paths_from_here() -> Iterator[None]:
    """Let paths stay relative to the present working directory, wherever the checked code goes meanwhile."""
    try:
        token = _FOLDER.set(_FOLDER.get() or os.getcwd())
    except OSError:
        yield
        return
    try:
        yield
    finally:
        _FOLDER.reset(token)


def functions_in(outputs: list[torch.Tensor]) -> list[type[Function]]:
    """Return the custom Function classes whose nodes the graph behind `outputs` holds, each once, nearest first."""
    found: dict[type[Function], None] = {}
    stack = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen: set[Any] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        function = getattr(node, "_forward_cls", None)
        if function is not None:
            found.setdefault(function)
        stack.extend(n for n, _ in node.next_functions if n is not None)
    return list(found)


def methods_of(function: type[Function]) -> list[str]:
    """Return which of forward, setup_context, backward and vjp a Function defines."""
    return [name for name in ("forward", "setup_context", "backward", "vjp") if getattr(function, name) is not getattr(Function, name)]
