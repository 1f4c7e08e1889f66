"""Recordings of the processes that a recorded program forks with multiprocessing."""

from __future__ import annotations

import multiprocessing.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..capture.casefile import read_recording
from .run import Run


@contextmanager
def gathered(run: Run) -> Iterator[None]:
    """Let forked children leave what they noted in a folder, and add it to the recording at the end."""
    with tempfile.TemporaryDirectory(prefix="pullback-record-") as folder:
        parent = os.getpid()

        def in_child(run: Run) -> None:
            def leave() -> None:
                if run.recording.functions:
                    run.save(Path(folder) / f"{os.getpid()}.pbrec")

            if os.getpid() != parent:
                multiprocessing.util.Finalize(None, leave, exitpriority=0)

        multiprocessing.util.register_after_fork(run, in_child)
        try:
            yield
        finally:
            if os.getpid() == parent:
                for path in sorted(Path(folder).glob("*.pbrec")):
                    with suppress(ValueError, OSError):
                        run.absorb(read_recording(path))
