"""The compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def constant_result(function: Any) -> Any:
    """`function`, which dynamo calls while it traces instead of looking into it: torch.compiler.assume_constant_result without importing dynamo (1.1
    s).

    Fallback: torch.compiler.assume_constant_result itself. Retire when that no longer imports dynamo.
    """
    function._dynamo_marked_constant = True
    return function


def import_compiler() -> None:
    """Import the compiler's front end, which torch imports at the first dispatch mode or `autograd.grad` anyway, so that forked processes share it.

    Fallback: nothing is imported, and each process does it when it needs it. Retire when torch offers a server for forked workers.
    """
    import contextlib
    import importlib

    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")


def compiled_from(function: Any) -> Any:
    """The function that torch.compile wrapped, None for any other.

    Fallback: None, so that the source of a compiled helper is not read. Retire when torch.compile sets `__wrapped__` on all that it returns.
    """
    return getattr(function, "_torchdynamo_orig_callable", None)


def traced_as(wrapper: Any, original: Any) -> Any:
    """`wrapper`, in whose place dynamo traces `original`.

    Fallback: dynamo traces the wrapper. Retire when torch.compiler can say this.
    """
    wrapper._torchdynamo_inline = original
    return wrapper


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process; dynamo is not imported for this.

    Fallback: 0. Retire when torch.compiler counts them.
    """
    import sys

    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def on_traced_function(seen: Callable[[Any], None]) -> Callable[[], None] | None:
    """Call `seen` with every Function class whose apply dynamo traces from now on; returns what ends this, None where dynamo is not imported.

    Fallback: None. Retire when dynamo reports what it inlines.
    """
    import sys

    kind = getattr(sys.modules.get("torch._dynamo.variables.misc"), "AutogradFunctionVariable", None)
    original = getattr(kind, "call_apply", None)
    if kind is None or original is None:
        return None

    def call_apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen(self.fn_cls)
        return original(self, *args, **kwargs)

    kind.call_apply = call_apply
    return lambda: setattr(kind, "call_apply", original)
