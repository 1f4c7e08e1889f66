"""Run something in several processes of this machine that talk to each other through gloo."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import _compat
from ..report.clean import clean
from .base import Skipped

SECONDS = 40.0
Work = Callable[[int], Any]


class RankError(Exception):
    """Raised when a process raised, died or did not end: `rank` is the first that did, `text` what it raised."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.rank = rank
        self.text = text


def on_ranks(count: int, work: Work, *, seconds: float = SECONDS) -> list[Any]:
    """Return what ``work(rank)`` returns in each of `count` forked processes, which are one gloo group.

    The processes see all objects of this one; what they change dies with them.

    Args:
        count: How many processes.
        work: Called in each with its rank; returns what `torch.save` can write.
        seconds: After which processes that have not ended are killed.

    Raises:
        Skipped: where processes cannot be forked, or torch has no gloo.
        RankError: if a process raised, died or did not end.
    """
    if not hasattr(os, "fork") or not dist.is_available() or not dist.is_gloo_available():
        raise Skipped("needs os.fork and torch.distributed with gloo")
    if torch.cuda.is_initialized():
        raise Skipped("CUDA is in use in this process, which therefore cannot be forked")
    with tempfile.TemporaryDirectory(prefix="pullback-") as name:
        folder = Path(name)
        pids = {_fork(rank, count, work, folder, seconds): rank for rank in range(count)}
        _wait(pids, folder, time.monotonic() + seconds)
        return [torch.load(folder / f"result{rank}", weights_only=False) for rank in range(count)]


def _fork(rank: int, count: int, work: Work, folder: Path, seconds: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        inherited = _settle()
        store = dist.FileStore(str(folder / "store"), count)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=timedelta(seconds=seconds))
        torch.save(work(rank), folder / f"result{rank}")
        status = 0
        del inherited
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
        (folder / f"error{rank}").write_text(clean(f"{type(error).__name__}: {error}{place}", limit=400))
    finally:
        os._exit(status)


def _settle() -> Any:
    """Make a forked process fit to run torch: one thread, no group, no output, and an end when its parent ends."""
    from .child import die_with_parent

    die_with_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    torch.set_num_threads(1)
    return _compat.forget_process_groups()


def _wait(pids: dict[int, int], folder: Path, deadline: float) -> None:
    """Wait until all have ended; the others are killed as soon as one fails, since they wait for it."""
    running = dict(pids)
    try:
        while running:
            for pid, rank in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del running[pid]
                    if status:
                        raise RankError(rank, _last_words(folder, rank, os.waitstatus_to_exitcode(status)))
            if running and time.monotonic() > deadline:
                raise RankError(min(running.values()), "did not end; one process may wait for a collective that another does not call")
            time.sleep(0.002)
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _last_words(folder: Path, rank: int, status: int) -> str:
    path = folder / f"error{rank}"
    return path.read_text() if path.exists() else f"ended with status {status}"


@contextlib.contextmanager
def group_of_one() -> Iterator[None]:
    """Let collectives work in this process while the context is open: a gloo group of this process alone, unless there is a group."""
    if not dist.is_available() or dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def with_group(evaluator: Any) -> Any:
    """Return the evaluator with every process group among its arguments replaced by the group of all ranks."""
    from .. import trees

    groups = {
        path: dist.group.WORLD for name, value in evaluator.named for path, leaf in trees.leaves(value, name) if isinstance(leaf, dist.ProcessGroup)
    }
    return evaluator.variant(groups) if groups else evaluator
