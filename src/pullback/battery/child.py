"""The worker's side: import torch once, fork a process for each file, and from it one for each Function.

Started by `workers.py` as ``python -m pullback.battery.child REQUESTS MESSAGES PRELOAD``: two file descriptors and a module to import first.
Requests and messages are lines of JSON.
Only one process of a worker talks at a time: who forks waits for its child, and then says how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import glob
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..capture.frames import is_of_project

_PR_SET_PDEATHSIG = 1
_GIB = 1 << 30


class Channel:
    """Lines of JSON over two file descriptors."""

    def __init__(self, requests: int, messages: int) -> None:
        self._requests, self._messages, self._buffer, self._pid = requests, messages, b"", os.getpid()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield requests until the other side closes."""
        while True:
            while b"\n" not in self._buffer:
                chunk = os.read(self._requests, 1 << 16)
                if not chunk:
                    return
                self._buffer += chunk
            line, self._buffer = self._buffer.split(b"\n", 1)
            yield json.loads(line)

    def send(self, **message: Any) -> None:
        """Write one message. A process that the checked code forked ends here, so that it cannot speak in our name."""
        if os.getpid() != self._pid:
            os._exit(0)
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._messages, data) :]

    def belongs_to_this_process(self) -> None:
        """Let the calling process speak; its requests stay with its parent unless it serves."""
        self._pid = os.getpid()


Handler = Callable[[dict[str, Any]], None]


def serve(channel: Channel, handle: Handler) -> None:
    """Fork a child for each request until one says ``close``."""
    for request in channel.requests():
        if request["do"] == "close":
            return
        _in_child(channel, handle, request)


def _in_child(channel: Channel, handle: Handler, request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            channel.belongs_to_this_process()
            settle(channel, request)
            handle(request)
            status = 0
        except BaseException as error:
            status = _speak_of_the_end(channel, error)
        finally:
            os._exit(status)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    channel.send(exit=os.waitstatus_to_exitcode(status), pid=pid)


def _speak_of_the_end(channel: Channel, error: BaseException) -> int:
    """Tell what the checked code raised to end the process, or that a check of ours broke."""
    place = user_place(error)
    if isinstance(error, SystemExit):
        channel.send(died=f"sys.exit({error.code!r}) was called", place=place)
        return 0
    if isinstance(error, KeyboardInterrupt):
        channel.send(died="KeyboardInterrupt was raised", place=place)
        return 0
    channel.send(broke=f"{type(error).__name__}: {error}", trace="".join(traceback.format_exception(error))[-8000:])
    return 1


def settle(channel: Channel, request: dict[str, Any]) -> None:
    """Give this process its own temporary folder, limits, and a place where a crash leaves its Python stack."""
    die_with_parent()
    channel.send(pid=os.getpid())
    os.environ["TMPDIR"] = request["tmp"]
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not glob.glob("/dev/nvidia[0-9]*"):
        _limit_memory()
    trace = os.open(request["trace"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    faulthandler.enable(file=trace, all_threads=False)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)


def _limit_memory() -> None:
    """Let an allocation that can never succeed raise instead of calling the kernel's out-of-memory killer; CUDA reserves too much for this."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = max(total, 8 * _GIB)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere it ends when its pipe breaks."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def user_place(error: BaseException) -> list[Any] | None:
    """Return file and line where the checked code raised, or of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [error.filename, error.lineno]
    frames = traceback.extract_tb(error.__traceback__)
    return next(([f.filename, f.lineno] for f in reversed(frames) if is_of_project(f.filename)), None)


class Opener:
    """Runs in the process of a file: imports it and serves its Functions."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __call__(self, request: dict[str, Any]) -> None:
        from . import discover
        from .targets import Target

        channel = self._channel
        target = Target(request["spec"], request["path"], request["module"], tuple(request["names"]))
        channel.send(at="import")
        try:
            loaded = discover.load(target, cases=request["cases"], configured=request["declare"])
        except discover.UnknownNameError as error:
            channel.send(unknown=str(error))
            return
        except BaseException as error:
            channel.send(import_failed=describe_error(error), place=user_place(error), gone=isinstance(error, (SystemExit, KeyboardInterrupt)))
            return
        try:
            loaded, problems = self._with_cases(loaded, request["seed"])
        except discover.UnknownNameError as error:
            channel.send(unknown=str(error))
            return
        may_fork = fit_to_fork()
        subjects = [{"name": s.name, "short": s.short, "path": s.path, "line": s.line, "skip": s.skip} for s in loaded.subjects]
        channel.send(subjects=subjects, problems=problems)
        handler = SubjectHandler(channel, loaded)
        if may_fork:
            serve(channel, handler)
            return
        handler(next(channel.requests()))

    def _with_cases(self, loaded: Any, seed: int) -> tuple[Any, list[dict[str, Any]]]:
        """Add the subjects that only cases name. Where the cases are broken, say so and go on without them."""
        from . import discover

        self._channel.send(at=f"{discover.CASES}()")
        try:
            return discover.with_subjects_of_cases(loaded, seed), []
        except discover.CasesError as error:
            return replace(loaded, sources=()), [{"code": error.code, "message": str(error), "place": [error.path, error.line]}]


def describe_error(error: BaseException) -> str:
    """Return type and message of an exception, also of one whose message cannot be made."""
    from ..report.clean import clean

    if isinstance(error, SystemExit):
        return f"sys.exit({clean(error.code)}) was called"
    return f"{type(error).__name__}: {clean(error, limit=2000, keep_newlines=True)}"


def fit_to_fork() -> bool:
    """Return whether what the file did on import survives a fork: other threads and a used GPU do not."""
    import torch

    return threading.active_count() == 1 and not torch.cuda.is_initialized()


class SubjectHandler:
    """Runs in the process of a Function: collects its samples, and checks each or writes the contract."""

    def __init__(self, channel: Channel, loaded: Any) -> None:
        self._channel, self._loaded = channel, loaded

    def __call__(self, request: dict[str, Any]) -> None:
        os.register_at_fork(after_in_child=_Generation().born)
        subject = self._loaded.subject(request["subject"])
        {"check": self._check, "contract": self._contract, "tests": self._tests}[request["do"]](subject, request)
        self._channel.send(end=True)

    def _check(self, subject: Any, request: dict[str, Any]) -> None:
        from . import samples

        channel = self._channel
        battery = importlib.import_module(request["battery"])
        settings = battery.Settings(**{key: _decoded(key, value) for key, value in request["settings"].items()})
        channel.send(at="inputs")
        refused = device_problem(request["settings"].get("device"))
        if refused:
            channel.send(refused=refused)
            return
        cases, problem = samples.collect(self._loaded, subject, settings.seed)
        channel.send(samples=[samples.describe(case) for case in cases], origin=cases[0].origin if cases else "")
        if problem is not None:
            channel.send(case=-1, report=problem.to_json(indent=None))
        for case in cases:
            if case.index in request["done"] or request["only"] not in (None, case.index):
                continue
            skip = frozenset(request["skip"].get(str(case.index), ()))
            channel.send(at="start", case=case.index)
            report = battery.run_case(case, settings, announce=lambda code, i=case.index: channel.send(at=code, case=i), skip=skip)
            channel.send(case=case.index, report=report.to_json(indent=None))

    def _contract(self, subject: Any, request: dict[str, Any]) -> None:
        from . import contract, discover, samples

        self._channel.send(at="inputs")
        cases, _ = samples.collect(self._loaded, subject, request["seed"])
        self._channel.send(at="contract", case=0)
        self._channel.send(page=contract.contract(subject.short, cases, discover.declared(self._loaded, subject)))

    def _tests(self, subject: Any, request: dict[str, Any]) -> None:
        """Send a test file, after the tensors that are too large for it are written beside where it will lie."""
        from pathlib import Path

        import torch

        from . import samples, written

        self._channel.send(at="inputs")
        cases, _ = samples.collect(self._loaded, subject, request["seed"])
        if not cases:
            return
        self._channel.send(at="tests", case=0)
        folder = Path(request["folder"])
        file = written.test_file(self._loaded, subject, cases, request["settings"], folder)
        if file.large:
            torch.save(dict(file.large), folder / f"{file.name}.pt")
        self._channel.send(page=file.source, name=file.name)


def device_problem(device: str | None) -> str:
    """Return why a device cannot be used, or an empty string."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        return f"--device {device} cannot be used: {str(error).partition(chr(10))[0]}"
    return ""


class _Generation:
    """Counts forks of forks: a forward that forks and returns in both processes would otherwise double them at each call of a check."""

    def __init__(self) -> None:
        self._depth = 0

    def born(self) -> None:
        self._depth += 1
        if self._depth > 1:
            os._exit(0)


def _decoded(key: str, value: Any) -> Any:
    """Return a setting as the battery wants it, from JSON."""
    import torch

    if key in ("select", "ignore"):
        return frozenset(value)
    return getattr(torch, value) if key == "dtype" and value else value


def preload(module: str) -> None:
    """Import once, for all the processes that will be forked, what each of them needs."""
    import torch

    torch.set_num_threads(1)
    if module:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run a worker until its parent closes the pipe."""
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    die_with_parent()
    preload(sys.argv[3])
    channel.send(ready=True)
    serve(channel, Opener(channel))


if __name__ == "__main__":
    main()
