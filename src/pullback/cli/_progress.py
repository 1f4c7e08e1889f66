"""What is going on, on a terminal's standard error while workers run."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from ..report.clean import clean
from ..report.codes import registry


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, str], None]]:
    """Give a function that is told ``(subject, what is done to it)``; it shows this on a terminal and is silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda subject, at: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Watch(bar)


class _Watch:
    def __init__(self, bar: object) -> None:
        self._bar = bar
        self._task = bar.add_task("starting workers", total=None)  # type: ignore[attr-defined]
        self._lock = threading.Lock()
        self._total = self._done = 0

    def __call__(self, subject: str, at: str) -> None:
        with self._lock:
            self._total += at == "found"
            self._done += at == "done"
            entry = registry().get(at)
            words = f"{clean(subject.rsplit('.', 1)[-1])}  {entry.code + ' ' + entry.name if entry else clean(at)}"
            self._bar.update(self._task, total=self._total or None, completed=self._done, description=words)  # type: ignore[attr-defined]
