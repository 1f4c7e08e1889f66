"""Run a program in this process, as Python itself would run it."""

from __future__ import annotations

import builtins
import importlib.metadata
import importlib.util
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class LaunchError(ValueError):
    """Raised for a program that cannot be found; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run.

    Args:
        argv: Its `sys.argv`.
        folder: What comes first on `sys.path`.
        run: Runs it.
        main: The module that is `__main__` meanwhile and afterwards; None for a command, which brings its own modules.
    """

    argv: tuple[str, ...]
    folder: str
    run: Callable[[], Any]
    main: types.ModuleType | None = None


def script(path: str, args: Sequence[str]) -> Program:
    """Return the program ``python path args``.

    Raises:
        LaunchError: if there is no such file, or it is not Python.
    """
    file = Path(path)
    try:
        code = compile(file.read_bytes(), str(file.absolute()), "exec", dont_inherit=True)
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise LaunchError(f"{path} is not Python: {error}") from error
    main = _main(str(file.absolute()), spec=None, package=None)
    return Program((path, *args), str(file.resolve().parent), lambda: exec(code, main.__dict__), main)


def module(name: str, args: Sequence[str]) -> Program:
    """Return the program ``python -m name args``.

    Raises:
        LaunchError: if there is no such module, or it has no source.
    """
    sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError, AttributeError) as error:
        raise LaunchError(f"-m {name}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    if spec is None or get_code is None:
        raise LaunchError(f"-m {name}: there is no such module that can be run")
    code = get_code(spec.name)
    main = _main(spec.origin or name, spec, spec.parent)
    return Program((spec.origin or name, *args), os.getcwd(), lambda: exec(code, main.__dict__), main)


def command(name: str, args: Sequence[str]) -> Program:
    """Return the program of a console command that is installed in this Python: ``pytest``.

    Raises:
        LaunchError: if no installed package has such a command.
    """
    found = next(iter(importlib.metadata.entry_points(group="console_scripts", name=os.path.basename(name))), None)
    if found is None:
        raise LaunchError(f"{name!r} is neither a Python file nor a console command of a package that is installed here")
    return Program((name, *args), os.getcwd(), lambda: sys.exit(found.load()()))


def run_program(program: Program) -> int:
    """Run a program and return its exit status; what it raises is shown as Python shows it."""
    sys.argv = list(program.argv)
    sys.path.insert(0, program.folder)
    if program.main is not None:
        sys.modules["__main__"] = program.main
    try:
        with _signals_raise():
            program.run()
            return _wait_for_threads()
    except Terminated as signal_:
        return 128 + signal_.number
    except SystemExit as exit_:
        return _status_of(exit_.code)
    except BaseException as error:
        _show(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1


class Terminated(BaseException):
    """Raised in a program for a signal that would have killed the process, so that what it did until then can be reported."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, frame: Any) -> None:
    raise Terminated(number)


def _raising() -> list[signal.Signals]:
    return [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is _raise]


def _let_kill() -> None:
    for number in _raising():
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, unless it handles them itself; its children they kill as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        _let_kill()


# Python forgets a signal that arrives in a child between fork and Python's own start there, so signals wait until the child is ready to die of them.
_masks: list[set[int]] = []


def _hold_signals() -> None:
    _masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, _raising()))


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())


def _let_signals_kill() -> None:
    _let_kill()
    _let_signals()


os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_let_signals_kill)


def _main(path: str, spec: Any, package: str | None) -> types.ModuleType:
    main = types.ModuleType("__main__")
    loader = getattr(spec, "loader", None)
    main.__dict__.update(__file__=path, __spec__=spec, __package__=package, __loader__=loader, __cached__=None, __builtins__=builtins)
    return main


def _wait_for_threads() -> int:
    """Let threads of the program end, for which Python waits too."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    return 0


def _status_of(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Show an exception as the interpreter would, without the frames that lie between it and the program."""
    trace = error.__traceback__
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(own):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    sys.stderr.flush()
