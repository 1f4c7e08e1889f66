"""An exception as it is looked at: where it passed, which Function was running, which graph, and what is said about it."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any

from torch import Tensor

from ...capture.calls import Function, forward_names, methods_of, resolve_target
from ...capture.frames import is_readers
from ...capture.graph import function_of, walk
from ...report.clean import clean
from ...report.finding import Location
from .. import measures
from ..places import code_at, entries, location
from .journal import Journal

WIDTH = 110


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is said about a mistake.

    Args:
        headline: What happened, in one sentence.
        place: The line where it shows.
        details: Further lines, each with a word that says what stands there.
        fix: What to write instead.
    """

    headline: str
    place: Location | None
    details: tuple[tuple[str, Location | str | None], ...]
    fix: str

    def lines(self) -> Iterator[str]:
        """Yield the message."""
        yield self.headline
        if self.place is not None:
            yield f"  {line_at(self.place)}"
        yield from (f"  {word:<10}{line_at(text) if isinstance(text, Location) else text}" for word, text in self.details if text)
        yield from textwrap.wrap(self.fix, WIDTH, initial_indent=f"  {'fix':<10}", subsequent_indent=" " * 12, break_long_words=False)


def line_at(place: Location) -> str:
    """Return a place and the code there."""
    return f"{measures.place(place)}   {code_at(place)}".rstrip()


class Sight:
    """An exception and what its traceback shows.

    Args:
        error: The exception.
        journal: What was noted before it.
    """

    def __init__(self, error: BaseException, journal: Journal) -> None:
        self.error, self.journal = error, journal
        self.text = str(error)
        self.entries = list(entries(error.__traceback__))
        self.readers = [entry for entry in self.entries if is_readers(entry.tb_frame.f_code.co_filename)]

    @property
    def place(self) -> Location | None:
        """The innermost line of the reader's code."""
        return at(self.readers[-1]) if self.readers else None

    @property
    def calling(self) -> Location | None:
        """The innermost line of the reader's code that is not inside of a Function's method: where backward or apply was called."""
        outside = [entry for entry in self.readers if method_of(entry.tb_frame) is None]
        return at(outside[-1]) if outside else self.place

    @functools.cached_property
    def method(self) -> tuple[type[Function], str, TracebackType] | None:
        """The innermost method of a custom Function that was running: the class, the method's name, and where it stood."""
        for entry in reversed(self.entries):
            found = method_of(entry.tb_frame)
            if found is not None:
                return (*found, entry)
        return None

    def passed(self, end: str, name: str) -> FrameType | None:
        """Return the innermost frame of a function of a file whose path ends so."""
        frames = (e.tb_frame for e in reversed(self.entries))
        return next((f for f in frames if f.f_code.co_name == name and f.f_code.co_filename.endswith(end)), None)

    @functools.cached_property
    def roots(self) -> list[Tensor]:
        """The tensors that the backward that raised began at."""
        frame = self.passed("autograd/graph.py", "_engine_run_backward")
        found = frame.f_locals.get("t_outputs", ()) if frame is not None else ()
        return [tensor for tensor in found if isinstance(tensor, Tensor)]

    @functools.cached_property
    def nodes(self) -> list[Any]:
        """The graph behind them, in the order of the forward."""
        return walk(self.roots).nodes if self.roots else []

    def function(self, name: str) -> type[Function] | None:
        """Return the custom Function of a name: one of this graph, else one that the reader's code knows or defines, else the one defined last.

        None where the graph holds several of that name, for an error of the engine does not say which of them it means.
        """
        known = {f for node in self.nodes if (f := function_of(node)) is not None and f.__name__ == name}
        if known:
            return known.pop() if len(known) == 1 else None
        named = [f for f in reversed(list(functions())) if f.__name__ == name]
        seen = {id(value) for frame in self.frames for value in (frame.f_locals.get(name), frame.f_globals.get(name))}
        modules = {frame.f_globals.get("__name__") for frame in self.frames}
        return next((f for f in named if id(f) in seen), None) or next((f for f in named if f.__module__ in modules), None) or next(iter(named), None)

    @property
    def frames(self) -> list[FrameType]:
        """The reader's frames, innermost first."""
        return [entry.tb_frame for entry in reversed(self.readers)]


def at(entry: TracebackType) -> Location:
    """Return where an entry of a traceback stands."""
    return location(entry.tb_frame.f_code.co_filename, entry.tb_lineno)


def functions() -> Iterator[type[Function]]:
    """Yield every custom Function of the process, torch's own excepted, each behind what it is derived from."""
    waiting: dict[type[Function], None] = {Function: None}
    while waiting:
        base = next(iter(waiting))
        del waiting[base]
        waiting.update(dict.fromkeys(base.__subclasses__()))
        if base is not Function and base.__module__.partition(".")[0] != "torch":
            yield base


def method_of(frame: FrameType) -> tuple[type[Function], str] | None:
    """Return the Function and the name of the method that a frame runs; None for other code."""
    code = frame.f_code
    if code.co_name not in ("forward", "backward", "setup_context", "vjp", "jvp", "vmap") and not code.co_name.startswith("_"):
        return None
    for function in functions():
        for name in methods_of(function):
            if code_of(inspect.getattr_static(function, name, None)) is code:
                return function, name
    return None


def code_of(method: Any) -> CodeType | None:
    """Return the code of what a class holds as a method, without its decorators."""
    method = inspect.unwrap(getattr(method, "__func__", method)) if method is not None else None
    return getattr(method, "__code__", None)


def backward_place(function: type[Function] | None) -> Location | None:
    """Return where a Function's backward is written."""
    return resolve_target(function).backward_location if function is not None else None


def forward_place(function: type[Function] | None) -> Location | None:
    """Return where a Function's forward is written."""
    return resolve_target(function).forward_location if function is not None else None


def short(function: type[Function] | None, otherwise: str = "") -> str:
    """Return a Function's name for a message."""
    return clean(function.__name__, limit=80) if function is not None else clean(otherwise, limit=80)


def value(tensor: Tensor) -> str:
    """Return a tensor's dtype and shape."""
    return measures.value(tensor.dtype, tensor.shape)


def listed(names: list[str], limit: int = 4) -> str:
    """Return names as an enumeration: ``"a, b and 3 more"``."""
    shown = ", ".join(names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def arguments_of(function: type[Function] | None) -> list[str]:
    """Return the names of what a Function's apply takes."""
    return [clean(name, limit=40) for name in forward_names(function)] if function is not None else []


def applied(sight: Sight) -> type[Function] | None:
    """Return the Function whose apply raised, or whose backward the engine called last."""
    frame = sight.passed("autograd/function.py", "apply")
    cls = frame.f_locals.get("cls") if frame is not None else None
    if isinstance(cls, type) and issubclass(cls, Function):
        return cls
    node = frame.f_locals.get("self") if frame is not None else None
    return getattr(node, "_forward_cls", None)
