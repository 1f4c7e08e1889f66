"""The text of a Function's own code: forward, backward, and what they call of their class and module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ..capture.calls import Function, backward_of
from ..capture.source import text_of

LEVELS = 2
"""How far calls are followed: a helper, and what it calls."""


def own_text(function: type[Function] | None, *, backward: bool = True) -> str:
    """Return the text of forward, and of backward, with that of the helpers of the same class and module that they call, as far as it can be read."""
    if function is None:
        return ""
    methods: list[Any] = [function.forward, backward_of(function)][: 1 + backward]
    first = [inspect.unwrap(getattr(method, "__func__", method)) for method in methods]
    found = [f for f in dict.fromkeys(first) if isinstance(f, FunctionType)]
    level = found
    for _ in range(LEVELS):
        level = [f for f in dict.fromkeys(h for caller in level for h in _helpers(function, caller)) if f not in found]
        found = [*found, *level]
    return text_of(*found)


def _helpers(function: type[Function], caller: FunctionType) -> Iterator[FunctionType]:
    for name in caller.__code__.co_names:
        for candidate in (_method(function, name), caller.__globals__.get(name)):
            if isinstance(candidate, FunctionType) and candidate.__module__ == caller.__module__:
                yield inspect.unwrap(candidate)


def _method(function: type[Function], name: str) -> Any:
    """A method that the class itself, or a base of the same module, defines; those that torch calls are no helpers."""
    if name in ("forward", "backward", "vjp", "jvp", "vmap", "setup_context"):
        return None
    for owner in function.__mro__:
        if name in vars(owner) and owner.__module__ == function.__module__:
            method = vars(owner)[name]
            return getattr(method, "__func__", method)
    return None
