"""Calls of a Function's methods, noted while a context is open."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from .calls import Function


@dataclass(slots=True)
class BackwardCall:
    """One call of a Function's backward, as the engine made it.

    Args:
        function: The class.
        context: The `ctx` it was given.
        grad_outputs: The cotangents it received; None where undefined.
        received: Copies of them, made before backward ran.
        returned: What it returned, before the engine reduces or casts anything.
        error: What it raised instead.
    """

    function: type[Function]
    context: Any
    grad_outputs: tuple[torch.Tensor | None, ...]
    received: tuple[torch.Tensor | None, ...] = ()
    returned: Any = None
    error: BaseException | None = None

    @property
    def gradients(self) -> tuple[Any, ...]:
        """What was returned, as a tuple."""
        return self.returned if isinstance(self.returned, tuple) else (self.returned,)


@contextmanager
def observed_backward(*functions: type[Function]) -> Iterator[list[BackwardCall]]:
    """Record every call of the given Functions' backward while the context is open; the classes are restored at its end."""
    calls: list[BackwardCall] = []
    restore: list[Callable[[], None]] = []
    for function in dict.fromkeys(functions):
        name = "vjp" if function.vjp is not Function.vjp and function.backward is Function.backward else "backward"
        restore.append(_replace(function, name, _observer(function, getattr(function, name), calls)))
    try:
        yield calls
    finally:
        for undo in reversed(restore):
            undo()


def _observer(function: type[Function], method: Callable[..., Any], calls: list[BackwardCall]) -> Callable[..., Any]:
    @functools.wraps(method)
    def observe(ctx: Any, *grad_outputs: Any) -> Any:
        call = BackwardCall(function, ctx, grad_outputs, tuple(g.detach().clone() if isinstance(g, torch.Tensor) else None for g in grad_outputs))
        calls.append(call)
        try:
            call.returned = method(ctx, *grad_outputs)
        except BaseException as error:
            call.error = error
            raise
        return call.returned

    return observe


def _replace(owner: type, name: str, method: Callable[..., Any]) -> Callable[[], None]:
    if name in owner.__dict__:
        original = owner.__dict__[name]
        setattr(owner, name, staticmethod(method))
        return lambda: setattr(owner, name, original)
    setattr(owner, name, staticmethod(method))
    return lambda: delattr(owner, name)


@dataclass(slots=True)
class ForwardCall:
    """One call of a Function's forward: its arguments without `ctx`, what it returned, its `ctx`, and what it marked dirty; before torch wraps it."""

    function: type[Function]
    arguments: tuple[Any, ...]
    returned: Any = None
    context: Any = None
    dirty: tuple[Any, ...] = ()

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What was returned, as a tuple."""
        return self.returned if isinstance(self.returned, tuple) else (self.returned,)


@contextmanager
def observed_forward(*functions: type[Function]) -> Iterator[list[ForwardCall]]:
    """Record every call of the given Functions' forward while the context is open; the classes are restored at its end."""
    calls: list[ForwardCall] = []
    restore: list[Callable[[], None]] = []
    for function in dict.fromkeys(functions):
        takes_ctx = function.setup_context is Function.setup_context
        restore.append(_replace(function, "forward", _forward_observer(function, function.forward, calls, skip=int(takes_ctx))))
        if not takes_ctx:
            restore.append(_replace(function, "setup_context", _setup_observer(function, function.setup_context, calls)))
    try:
        yield calls
    finally:
        for undo in reversed(restore):
            undo()


def _forward_observer(function: type[Function], method: Callable[..., Any], calls: list[ForwardCall], skip: int) -> Callable[..., Any]:
    @functools.wraps(method)
    def observe(*args: Any, **kwargs: Any) -> Any:
        call = ForwardCall(function, (*args[skip:], *kwargs.values()), context=args[0] if skip else None)
        call.returned = method(*args, **kwargs)
        call.dirty = tuple(getattr(args[0], "dirty_tensors", None) or ()) if skip and args else ()
        calls.append(call)
        return call.returned

    return observe


def _setup_observer(function: type[Function], method: Callable[..., Any], calls: list[ForwardCall]) -> Callable[..., Any]:
    @functools.wraps(method)
    def observe(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        for call in reversed(calls):
            if call.function is function and call.context is None:
                call.context = ctx
                break
        return method(ctx, *args, **kwargs)

    return observe


@contextmanager
def replaced(function: type[Function], name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Let a Function have another static method of this name while the context is open."""
    undo = _replace(function, name, method)
    try:
        yield
    finally:
        undo()
