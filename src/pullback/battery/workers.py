"""The parent's side of a worker: start it, ask it, watch it, end it.

A worker imports torch once. For each file it forks a process that imports the file, and for each Function that process forks another, so that
globals, random state and process groups die with it. Whatever the checked code does to its process, the parent only ever reads lines of JSON,
and knows from the last one what was going on when a process died or went quiet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..capture.frames import is_of_project
from ..report.finding import Location
from .targets import Target

START_SECONDS = 120.0
OUTPUT_LIMIT = 64 * 1024
MESSAGE_LIMIT = 64 << 20
_GRACE = 0.3
_FRAME = re.compile(r'^\s+File "(?P<path>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


class WorkerError(RuntimeError):
    """Raised when a worker itself cannot start or dies: our own failure, or a machine without memory."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended before it was done.

    Args:
        kind: ``"crash"``, ``"timeout"``, or ``"broke"`` where a check of ours raised.
        how: In words: ``"killed by SIGSEGV"``.
        at: What it had announced last: a code, ``"import"``, ``"inputs"``, …
        case: Number of the sample that was checked; -1 before the first.
        place: Where in the checked code it stood, as far as that is known.
        output: What it had printed.
    """

    kind: str
    how: str
    at: str = ""
    case: int = -1
    place: Location | None = None
    output: str = ""


class Output:
    """What a process printed: the beginning and the end, 64 KiB in all."""

    def __init__(self) -> None:
        self._head, self._tail, self._total = bytearray(), bytearray(), 0

    def feed(self, data: bytes) -> None:
        """Take more output."""
        self._total += len(data)
        room = OUTPUT_LIMIT // 2 - len(self._head)
        self._head += data[: max(0, room)]
        self._tail += data[max(0, room) :][-OUTPUT_LIMIT // 2 :]
        del self._tail[: -OUTPUT_LIMIT // 2]

    def text(self) -> str:
        """Return what was kept; says how much is missing in between."""
        missing = self._total - len(self._head) - len(self._tail)
        gap = f"\n… [{missing} bytes cut]\n" if missing else ""
        return self._head.decode(errors="replace") + gap + self._tail.decode(errors="replace")


@dataclass(slots=True)
class _State:
    """What is known about the process that runs now."""

    at: str = ""
    case: int = -1
    killed: bool = False
    said: str = ""
    broke: str = ""
    place: Location | None = None
    output: Output = field(default_factory=Output)


class Worker:
    """One worker process. Use it from one thread, as a context manager; only `kill` may be called from another.

    Args:
        preload: A module to import before the first fork, so that all processes share what it imports; or nothing.
    """

    def __init__(self, preload: str = "") -> None:
        self._preload = preload
        self._folder = Path(tempfile.mkdtemp(prefix="pullback-"))
        self._pids: list[int] = []
        self._buffer = b""
        self._state = _State()
        self._file: Target | None = None
        self._calls = 0
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    @property
    def file(self) -> Target | None:
        """The file whose process is ready to check its Functions."""
        return self._file

    def open(self, target: Target, *, cases: str | None, declare: Mapping[str, Any], seed: int, limit: float) -> dict[str, Any] | Death:
        """Import a file in a process of its own, which then waits for `check`.

        Returns:
            A message with ``subjects`` and ``problems``, or with ``unknown`` or ``import_failed``; a `Death` where the process died.
        """
        self.close()
        request = {"spec": target.spec, "path": target.path, "module": target.module, "names": list(target.names), "cases": cases}
        self._ask("open", **request, declare=declare, seed=seed)
        answer: dict[str, Any] | None = None
        for message in self._messages(limit):
            if "subjects" in message:
                self._file = target
                return message
            if "unknown" in message or "import_failed" in message:
                answer = message | {"output": ""}
            if "exit" in message:
                return answer | {"output": self._state.output.text()} if answer else self._death(message)
        raise AssertionError("unreachable")

    def ask(self, do: str, subject: str, *, limit: float, **work: Any) -> Iterator[dict[str, Any] | Death]:
        """Have something done to one subject of the open file, in a process of its own.

        Args:
            do: ``"check"`` or ``"contract"``.
            subject: Its qualified name.
            limit: Seconds for which the process may be quiet.
            work: What else the process has to know.

        Yields:
            Messages as they come, and last a `Death` if the process did not reach its end.
        """
        self._ask(do, subject=subject, **work)
        finished = False
        for message in self._messages(limit):
            if "exit" in message:
                if not self._pids:
                    self._file = None
                if not finished:
                    yield self._death(message)
                return
            finished = finished or "end" in message
            yield message

    def close(self) -> None:
        """End the process of the open file."""
        if self._file is None:
            return
        self._file = None
        with contextlib.suppress(BrokenPipeError):
            self._write({"do": "close"})
        for message in self._messages(_GRACE * 10):
            if "exit" in message:
                return

    def kill(self) -> None:
        """Kill the worker and everything it started; whoever waits for it gets a `WorkerError`."""
        for pid in reversed(self._pids):
            _kill_group(pid)
        self._process.kill()

    def end(self) -> None:
        """Kill the worker, and remove its temporary folder."""
        self.kill()
        self._process.wait()
        for descriptor in (self._requests, self._message_end, self._output_end):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        requests, self._requests = os.pipe()
        self._message_end, messages = os.pipe()
        self._output_end, output = os.pipe()
        command = [sys.executable, "-P", "-m", "pullback.battery.child", str(requests), str(messages), self._preload]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(requests, messages), env=environment, start_new_session=True
        )
        for descriptor in (requests, messages, output):
            os.close(descriptor)
        self._selector = selectors.DefaultSelector()
        for descriptor in (self._message_end, self._output_end):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)
        for message in self._messages(START_SECONDS):
            if "ready" in message:
                return

    def _ask(self, do: str, **request: Any) -> None:
        self._calls += 1
        folder = self._folder / str(self._calls)
        temporary = folder / "tmp"
        temporary.mkdir(parents=True)
        self._state = _State()
        self._drain()
        self._state = _State()
        self._write({"do": do, "tmp": str(temporary), "trace": str(folder / "trace"), **request})

    def _write(self, request: Mapping[str, Any]) -> None:
        data = json.dumps(request).encode() + b"\n"
        while data:
            data = data[os.write(self._requests, data) :]

    def _messages(self, limit: float) -> Iterator[dict[str, Any]]:
        """Yield the worker's messages. A process that is quiet for longer than `limit` seconds is killed; its end is a message too.

        Where more processes want to run than there are processors it has so many times as long, up to four: it may wait for its turn.
        """
        deadline, patience = time.monotonic() + limit, 1.0
        while True:
            while (line := self._line()) is not None:
                message = self._note(line)
                if message is not None:
                    yield message
                    deadline, patience = time.monotonic() + limit, 1.0
            self._read(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline and b"\n" not in self._buffer:
                crowd = 1.0 if self._state.killed else _crowd()
                if crowd > patience:
                    deadline, patience = deadline + limit * (crowd - patience), crowd
                    continue
                self._kill_quiet(limit)
                deadline = time.monotonic() + 10

    def _line(self) -> bytes | None:
        if b"\n" not in self._buffer:
            return None
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _note(self, line: bytes) -> dict[str, Any] | None:
        """Read one message and keep in mind what it says about the process; None for a line that is none, or that comes too late."""
        try:
            message = json.loads(line)
        except ValueError:
            return None
        state = self._state
        if "exit" in message:
            if message["pid"] in self._pids:
                del self._pids[self._pids.index(message["pid"]) :]
            self._drain()
        elif "pid" in message:
            self._pids.append(message["pid"])
        elif state.killed:
            return None
        elif "at" in message:
            state.at, state.case = message["at"], message.get("case", -1)
        elif "died" in message:
            state.said, state.place = message["died"], _location(message["place"])
        elif "broke" in message:
            state.broke = message["broke"]
            state.output.feed(message["trace"].encode())
        return message

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            data = _read_some(key.fd)
            if key.fd == self._output_end:
                self._state.output.feed(data)
                if not data:
                    self._selector.unregister(key.fd)
            elif data:
                self._buffer += data
                if len(self._buffer) > MESSAGE_LIMIT and b"\n" not in self._buffer:
                    self._buffer = b""
                    self._kill_speaker()
            else:
                raise WorkerError(self._last_words())

    def _drain(self) -> None:
        """Take what was printed before the process ended."""
        for _ in range(1024):
            data = _read_some(self._output_end)
            if not data:
                return
            self._state.output.feed(data)

    def _last_words(self) -> str:
        status = self._process.wait()
        self._drain()
        return f"a worker ended with status {status}:\n{self._state.output.text()[-4000:]}"

    def _kill_quiet(self, limit: float) -> None:
        """Kill the process that runs, after it has had a moment to write down where it stands.

        The signal that asks for this may end a system call in which the process hung; what it says from then on does not count.
        """
        self._state.killed, self._state.said = True, f"no end after {limit:g} s"
        if not self._pids:
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[-1], signal.SIGUSR1)
        time.sleep(_GRACE)
        _kill_group(self._pids[-1])

    def _kill_speaker(self) -> None:
        self._state.killed, self._state.said = True, "it wrote to the pipe of its parent"
        if self._pids:
            _kill_group(self._pids[-1])

    def _death(self, message: Mapping[str, Any]) -> Death:
        state = self._state
        output = state.output.text()
        if state.broke:
            return Death("broke", state.broke, state.at, state.case, output=output)
        place = state.place or self._place_in_trace()
        if state.said:
            return Death("timeout" if state.said.startswith("no end") else "crash", state.said, state.at, state.case, place, output)
        return Death("crash", _how(message["exit"]), state.at, state.case, place, output)

    def _place_in_trace(self) -> Location | None:
        """Return the innermost place in the checked code of the stack that a crash or the timeout left behind."""
        try:
            trace = (self._folder / str(self._calls) / "trace").read_text(errors="replace")
        except OSError:
            return None
        return next((Location(m["path"], int(m["line"])) for m in _FRAME.finditer(trace) if is_of_project(m["path"])), None)


def _location(place: list[Any] | None) -> Location | None:
    return Location(str(place[0]), int(place[1])) if place else None


def _how(status: int) -> str:
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return b""


def _crowd() -> float:
    """How many processes want to run for each processor, from 1 to 4."""
    try:
        return min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    except OSError:
        return 1.0


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
