"""`recording`: note what a program does with custom derivatives while a `with` block, or the whole program, runs."""

from __future__ import annotations

import functools
import inspect
import os
import platform
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from .. import _compat
from ..capture.casefile import write_recording
from ..capture.recorded import FunctionRecord, Recording
from ..report.finding import JSON
from ..report.report import Report
from .naming import locate
from .observe import Entry, Observer
from .patch import Patches
from .profile import Profile
from .replay import check_recording


class Run:
    """One recording, running or ended.

    Args:
        values: Whether the values of tensors are kept; else only shapes, strides and statistics.
    """

    def __init__(self, *, values: bool = True) -> None:
        self._observer = Observer(values=values)
        self._patches = Patches(self._observer, self._found)
        self._records: dict[str, FunctionRecord] = {}
        self._compiled: dict[str, None] = {}
        self._graphs_before = 0
        self._graphs = 0
        self._end_tracing: Any = None
        self._running = False

    def start(self) -> None:
        """Begin to note calls."""
        self._observer.active = self._running = True
        self._graphs_before = _compat.compiled_graphs()
        self._watch_compiler()
        self._patches.install()
        _in_forked_children(self)

    def stop(self) -> None:
        """Give every class its own methods back; a second call does nothing."""
        if not self._running:
            return
        self._running = self._observer.active = False
        self._patches.remove()
        self._graphs += _compat.compiled_graphs() - self._graphs_before
        if self._end_tracing is not None:
            self._end_tracing()
            self._end_tracing = None

    def _watch_compiler(self) -> None:
        if self._end_tracing is None:
            self._end_tracing = _compat.on_traced_function(
                lambda function: self._compiled.setdefault(f"{function.__module__}.{function.__qualname__}")
            )

    def _found(self, entry: Entry) -> None:
        self._watch_compiler()
        known = self._records.setdefault(entry.record.name, entry.record)
        if known is not entry.record and _same_thing(known, entry.record):
            entry.record = known
        elif known is not entry.record:
            self._records[f"{entry.record.name}#{len(self._records)}"] = entry.record

    def forget(self) -> None:
        """Start anew with nothing noted: what a forked child does, whose parent holds what was noted before."""
        self._observer.clear()
        for record in self._records.values():
            record.signatures.clear()
            record.elsewhere.clear()
        self._patches.forget()

    def absorb(self, other: Recording) -> None:
        """Add what another process noted of the same program."""
        for record in other.functions:
            known = self._records.get(record.name)
            self._records[record.name] = record if known is None else known.plus(record)
        self._graphs += other.compiled_graphs
        self._compiled.update(dict.fromkeys(other.compiled))

    @property
    def recording(self) -> Recording:
        """What was noted so far."""
        self._patches.settle()
        used = [record for record in self._records.values() if record.calls or any(s.raised for s in record.signatures)]
        for record in used:
            locate(record)
        graphs = self._graphs + (_compat.compiled_graphs() - self._graphs_before if self._running else 0)
        return Recording(used, environment(), graphs, tuple(self._compiled))

    def report(self, **settings: Any) -> Report:
        """Return the report of the battery on the recorded calls, with their real layouts; recording pauses meanwhile.

        Args:
            **settings: ``seed``, ``orders``, ``thorough``, ``select``, ``ignore`` as `pullback.check` takes them; ``modules``: names of packages
                whose derivatives are checked too, besides those of the project.

        Returns:
            A `Report` over every derivative that was applied.

        Raises:
            RuntimeError: in one of several ranks of torch.distributed.
        """
        if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise RuntimeError(
                "a Function that communicates would wait for the other ranks for ever: save(...) the recording of each rank and check the files "
                "together, `pullback check run.rank*.pbrec`"
            )
        running = self._running
        self.stop()
        try:
            return check_recording(self.recording, **settings)
        finally:
            if running:
                self.start()

    def profile(self) -> Profile:
        """Return a table: calls, time in forward and backward, bytes kept, layouts, dtypes and autocast states seen."""
        return Profile(self.recording)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the recording to a file that `pullback check` reads, also on another machine.

        Args:
            path: Where, ``"run.pbrec"``.

        Returns:
            The path.

        Raises:
            OSError: if it cannot be written.
        """
        return write_recording(self.recording, Path(path))


@contextmanager
def recording(*, values: bool = True) -> Iterator[Run]:
    """Note every call of a custom Function, op or torch.library op in a `with` block; nothing of the program changes.

    Args:
        values: False keeps only shapes, strides and statistics of tensors, for data that must not leave the machine.

    Yields:
        A `Run`: `report()` checks what was seen, `profile()` shows times and layouts, `save(path)` writes it to a file.

    Example:
        >>> import torch, pullback as pb
        >>> class Square(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * dy
        >>> with pb.recording() as run:
        ...     Square.apply(torch.ones(2, 3, requires_grad=True).t()).sum().backward()
        >>> run.recording.functions[0].signatures[0].arguments
        ('x: float32[3, 2] strides (1, 3)',)
    """
    run = Run(values=values)
    run.start()
    try:
        yield run
    finally:
        run.stop()


def _same_thing(known: FunctionRecord, record: FunctionRecord) -> bool:
    """Whether two classes stand for the same op, or one defines the other anew (a cell of a notebook that is run again, a test's local class)."""
    return known.kind == record.kind and (known.kind != "function" or _written_at(known.live) == _written_at(record.live))


def _written_at(function: Any) -> tuple[str, int] | None:
    """Where the forward of a class is written, as its code object knows it."""
    code = getattr(inspect.unwrap(function.forward), "__code__", None) if function is not None else None
    return None if code is None else (code.co_filename, code.co_firstlineno)


def environment() -> dict[str, JSON]:
    """Return what is needed to understand a recording elsewhere."""
    from .. import __version__

    found: dict[str, JSON] = {
        "pullback": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "argv": [*sys.argv],
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_initialized():
        found["gpu"] = torch.cuda.get_device_name()
    rank = os.environ.get("RANK", "")
    if rank.isdigit():
        found["ranks"] = [int(rank)]
    return found


_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()


def _in_forked_children(run: Run) -> None:
    """Let children that the program forks (DataLoader workers) begin with nothing noted and no lock held."""
    _RUNS.add(run)
    _register_once()


@functools.cache
def _register_once() -> None:
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for run in list(_RUNS):
        with suppress(Exception):
            run.forget()


__all__ = ["Run", "recording"]
