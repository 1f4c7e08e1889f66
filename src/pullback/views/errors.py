"""`explain_errors`: what torch says about a mistake with autograd, with the Function, file and line concerned and what to do."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from types import TracebackType
from typing import Any

from ..capture.frames import is_own
from ..report.clean import clean
from .mistakes import again, arguments, calls, context, cut, returned, transforms, written
from .mistakes.journal import Journal, Patches
from .mistakes.sight import Sight
from .mistakes.silent import Steps
from .places import entries

_KINDS = (again, written, returned, arguments, context, cut, calls, transforms)
_HIDDEN: tuple[type[Exception], ...] = () if os.environ.get("PULLBACK_DEBUG") else (Exception,)
_MARK = "__pullback_explained__"


class ErrorsExplained(contextlib.ContextDecorator):
    """What `explain_errors` returns: a context manager and a decorator, which may be entered more than once, one in another too."""

    def __enter__(self) -> None:
        _SHARED.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        journal = _SHARED.leave()
        if isinstance(error, Exception):
            _without_own_frames(error)
            explain(error, journal)


class _Shared:
    """The one journal of the process, kept from the first `explain_errors` that is entered to the last that is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._kept: tuple[Journal, Patches, Steps] | None = None

    def enter(self) -> None:
        with self._lock:
            self._depth += 1
            if self._kept is None:
                journal = Journal()
                self._kept = journal, Patches(journal), Steps(journal)
                self._kept[1].install()
                self._kept[2].install()

    def leave(self) -> Journal:
        with self._lock:
            self._depth -= 1
            assert self._kept is not None
            journal, patches, steps = self._kept
            if self._depth == 0:
                self._kept = None
                steps.remove()
                patches.remove()
            return journal


_SHARED = _Shared()


def explain_errors() -> ErrorsExplained:
    """Let errors about autograd say which Function, file and line they are about, and what to do.

    An exception that leaves the block is looked at: a second backward through a freed graph, a tensor that was written in place and which line
    wrote it, a gradient that is None and where the graph was cut, methods of a custom Function that break its contract, and more. Its message
    becomes the explanation, and the exception as torch raised it becomes its ``__cause__``; it is the same object, of the same class, with the same
    traceback. Exceptions that are no such mistake, or are handled inside the block, stay as they are.

    Two mistakes that raise nothing are warnings at the line concerned: gradients that accumulate across steps, and an optimizer's step after a
    backward that gave none of its parameters a gradient.

    Returns:
        A context manager, which also serves as a decorator. ``pullback run script.py`` runs a whole program in it.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.ones(3, requires_grad=True)
        >>> try:
        ...     with pb.explain_errors():
        ...         loss = x.exp().sum()
        ...         loss.backward()
        ...         loss.backward()
        ... except RuntimeError as error:
        ...     print(str(error).splitlines()[0])
        Trying to backward through the graph a second time: what ExpBackward0 saved was freed by the first backward
    """
    return ErrorsExplained()


def explain(error: Exception, journal: Journal) -> None:
    """Give an exception its explanation, if there is one."""
    if hasattr(error, _MARK):
        return
    with contextlib.suppress(*_HIDDEN), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sight = Sight(error, journal)
        explanation = next((found for kind in _KINDS if (found := kind.explain(sight)) is not None), None)
        if explanation is not None:
            _say(error, "\n".join(clean(line, limit=400) for line in explanation.lines()))


def _say(error: Exception, message: str) -> None:
    """Make a message that of an exception, and what it was its cause; a note where its class shows something else than its message."""
    args = error.args
    original = _copy(error)
    setattr(error, _MARK, True)
    error.args = (message, *args[1:])
    if message not in str(error) or not args or not isinstance(args[0], str) or original is None:
        error.args = args
        error.add_note(message)
    else:
        error.__cause__ = original


def _copy(error: Exception) -> Exception | None:
    """Return an exception of the same class with the same message and attributes; its constructor is not run."""
    kind = type(error)
    copy: Any = kind.__new__(kind, *error.args)
    copy.args = error.args
    with contextlib.suppress(AttributeError):
        copy.__dict__.update({key: value for key, value in vars(error).items() if key != "__notes__"})
    copy.__cause__, copy.__context__, copy.__suppress_context__ = error.__cause__, error.__context__, error.__suppress_context__
    return copy if str(copy) == str(error) else None


def _without_own_frames(error: BaseException) -> None:
    """Take the frames of the wrappers that note things out of a traceback."""
    kept = [entry for entry in entries(error.__traceback__) if not _is_wrapper(entry)]
    for entry, following in zip(kept, [*kept[1:], None], strict=True):
        entry.tb_next = following
    error.__traceback__ = kept[0] if kept else error.__traceback__


def _is_wrapper(entry: TracebackType) -> bool:
    code = entry.tb_frame.f_code
    return is_own(code.co_filename) and (code.co_filename.endswith("journal.py") or code.co_qualname == "on_backward.<locals>.run")
