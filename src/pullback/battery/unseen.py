"""Run code as it would run where nobody checks it: no caller of this package on the stack, none in `sys.modules`, no test runner either."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_HIDDEN = ("pullback", "_pullback_pytest", "pytest", "_pytest", "unittest", "hypothesis", "xdist", "execnet")
_VARIABLES = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER_COUNT")


def unseen(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``, called in a thread whose stack begins with it, while modules and variables of checkers are hidden.

    Import statements go on to find the hidden modules: the import system keeps its own table of what is loaded.
    """
    with ThreadPoolExecutor(1) as thread, _hidden():
        return thread.submit(function, *args, **kwargs).result()


@contextmanager
def _hidden() -> Iterator[None]:
    real = sys.modules
    shown = {name: module for name, module in real.items() if name.partition(".")[0] not in _HIDDEN}
    main = real.get("__main__")
    if main is not None and any(f"{os.sep}{name}" in (getattr(main, "__file__", None) or "") for name in _HIDDEN):
        shown["__main__"] = ModuleType("__main__")
    variables = {name: os.environ.pop(name) for name in (*_VARIABLES, *(n for n in os.environ if n.startswith("PULLBACK"))) if name in os.environ}
    sys.modules = shown
    try:
        yield
    finally:
        sys.modules = real
        for name, module in shown.items():
            real.setdefault(name, module)
        os.environ.update(variables)
