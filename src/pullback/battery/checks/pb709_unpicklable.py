"""PB709."""

from __future__ import annotations

import copy
import functools
import pickle
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from ...capture.saved import reachable, storages
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..probe import Probe

LARGEST = 1 << 26
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Unpicklable(Check):
    """The op is a local function, or holds one, so that it can be neither pickled nor copied with the model that uses it.

    Why it matters:
        ``torch.save(model)``, data loaders and training processes that are spawned, and ``copy.deepcopy`` for averaging fail on the whole model.

    How it is measured:
        The callable that is checked is pickled, and deep-copied. Function classes and functions at the top of a module pass by name. A lambda, or a
        function written in place for the check itself, is skipped.

    Example:
        ``def surrogate(alpha): def spike(x): return Spike.apply(x, alpha); return spike``.

    Instead:
        A small class with ``__call__``, or ``functools.partial`` of a function at the top of the module.

    References:
        jeshraghian/snntorch#420.
    """

    code = "PB709"
    name = "unpicklable"
    severity = "warning"
    needs = ()

    def run(self, probe: Probe) -> Iterator[Finding]:
        target = probe.case.target
        if probe.target.direct or isinstance(target, type):
            raise Skipped("a Function class is pickled by its name")
        written_here = _written_here(target)
        if written_here:
            raise Skipped(written_here)
        if sum(storages(t for _, t in reachable(target)).values()) > LARGEST:
            raise Skipped("holds more memory than is copied for a check")
        for what, attempt in (("pickle.dumps", pickle.dumps), ("copy.deepcopy", copy.deepcopy)):
            try:
                attempt(target)
            except Exception as error:
                if not _about_local(target, error):
                    raise Skipped(f"{what} raises {type(error).__name__}, not about a local function or class") from None
                yield self._fails(probe, what, error)
                return

    def _fails(self, probe: Probe, what: str, error: Exception) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name} cannot be pickled: it is, or holds, something local to a function",
            location=probe.target.location,
            evidence=[Evidence(what, got=f"{type(error).__name__}: {_ADDRESS.sub('', str(error))}", expected="bytes")],
            cause="pickle finds functions and classes by name, and a local one has none that can be imported",
            certain=True,
            fix="return an instance of a small class with __call__, or functools.partial of a function at the top of the module",
        )


def _about_local(target: Any, error: Exception) -> bool:
    return "<locals>" in str(error) or "local object" in str(error) or "<lambda>" in str(error)


def _written_here(target: Any) -> str:
    """Return why a local callable is nothing but a wrapper for the check, or an empty string."""
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, types.MethodType):
        target = target.__self__ if not isinstance(target.__self__, type) else target.__func__
    if isinstance(target, types.FunctionType):
        code, name = target.__code__, target.__qualname__
    else:
        code, name = None, type(target).__qualname__
    if name.endswith("<lambda>"):
        return "a lambda, written in place for the check"
    outer, found, _ = name.rpartition(".<locals>.")
    if not found:
        return ""
    if outer.rpartition(".")[2] == "pullback_cases" or _running(code, name.rpartition(".")[2]):
        return "written in place for the check: the function that defines it is running"
    return ""


def _running(code: types.CodeType | None, name: str) -> bool:
    frame = sys._getframe()
    while frame is not None:
        constants = (c for c in frame.f_code.co_consts if isinstance(c, types.CodeType))
        if any(c is code if code is not None else c.co_name == name for c in constants):
            return True
        frame = frame.f_back
    return False
