"""Custom Functions: how torch calls, makes and marks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def c_apply(function: Any) -> Any:
    """The C entry of `Function.apply`, bound to `function`; it skips the Python prologue that binds arguments at every call.

    Fallback: none; `Function.apply` itself ends in this call. Retire when `Function.apply` no longer calls inspect.signature (pytorch#90224).
    """
    import torch

    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def context_type(function: Any) -> type | None:
    """The class of the `ctx` that torch makes for a call of this very Function, rather than of a subclass or under a transform.

    Fallback: none; torch's own engine reads the name. Retire when a ctx names its Function.
    """
    return getattr(function, "_backward_cls", None)


def on_new_function(seen: Callable[[Any], None]) -> Callable[[], None]:
    """Call `seen` with every autograd.Function subclass that is made from now on; returns what ends this.

    Fallback: `Function.__init_subclass__`, which a class may forget to call. Retire when torch has a registry of Functions.
    """
    from torch.autograd.function import FunctionMeta

    original = FunctionMeta.__init__

    def init(cls: Any, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        original(cls, name, bases, attrs)
        seen(cls)

    FunctionMeta.__init__ = init

    def end() -> None:
        if FunctionMeta.__init__ is init:
            FunctionMeta.__init__ = original

    return end


def is_once_differentiable(backward: Any) -> bool:
    """Whether a backward carries the decorator `once_differentiable`.

    Fallback: none is seen. Retire when torch marks what it wraps.
    """
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and code is not None and "once_differentiable" in getattr(code, "co_qualname", "")
