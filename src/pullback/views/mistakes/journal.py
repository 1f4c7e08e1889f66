"""Notes what a program does that an error cannot tell afterwards: which line wrote a tensor in place, ran a backward, or left the graph.

Nothing is noted of operations that neither write in place nor leave the graph, and nothing keeps a tensor alive.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from ... import _compat
from ...capture.frames import calling_frame, is_readers
from ...capture.graph import function_of, walk
from ...report.finding import Location
from ..places import location

WRITES, STORAGES, CUTS, BACKWARDS = 8, 4096, 64, 256
UPDATES = frozenset({"__isub__", "sub_", "__iadd__", "add_"})
_STRANGE = (RuntimeError, NotImplementedError, AttributeError, TypeError)
_CASTS = ("long", "int", "short", "char", "byte", "bool", "to", "type")
_LEAVES = ("detach", "numpy", "item", "tolist", "argmax", "argmin", *_CASTS, "__gt__", "__lt__", "__ge__", "__le__")


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened at a line.

    Args:
        order: Its place among all that was noted.
        what: The operation, ``"add_"``, ``"detach"``.
        at: File and line.
        version: For a write: how often the memory had been written then.
        made: For a backward: the number of the youngest node that it began at.
        code: For a write: the code that did it.
        keeps: For a backward: whether it kept the graph.
        once: For a backward that builds a graph: what can be differentiated once only.
    """

    order: int
    what: str
    at: tuple[str, int]
    version: int = 0
    made: int = 0
    code: CodeType | None = None
    keeps: bool = False
    once: tuple[Any, ...] = ()

    @property
    def place(self) -> Location:
        return location(*self.at)


class Journal:
    """What was noted.

    Attributes:
        backwards: The last backwards that ended well.
        cuts: The last lines that left the graph with a tensor that required grad.
        steps: The last step of each optimizer.
        after_backward: What is told about every backward.
        on_update: What is told about every leaf that is updated by hand.
        stepping: Whether an optimizer moves its parameters now.
    """

    def __init__(self) -> None:
        self.backwards: deque[Note] = deque(maxlen=BACKWARDS)
        self.cuts: OrderedDict[tuple[str, str, int], Note] = OrderedDict()
        self.steps: weakref.WeakKeyDictionary[Any, Note] = weakref.WeakKeyDictionary()
        self.after_backward: list[Callable[[Note], None]] = []
        self.on_update: list[Callable[[Tensor, Note], None]] = []
        self.stepping = False
        self._writes: OrderedDict[int, tuple[Any, deque[tuple[CodeType, int, str, int]]]] = OrderedDict()
        self._order = 0

    def next(self) -> int:
        """Return the next number in the order."""
        self._order += 1
        return self._order

    def wrote(self, tensor: Tensor, what: str, frame: FrameType) -> None:
        """Note a write in place."""
        reader = frame if is_readers(frame.f_code.co_filename) else calling_frame(frame)
        if reader is None:
            return
        key = _compat.storage_id(tensor)
        known = self._writes.get(key)
        if known is None:
            known = self._writes[key] = (_compat.storage_anchor(tensor.untyped_storage()), deque(maxlen=WRITES))
            if len(self._writes) > STORAGES:
                self._writes.popitem(last=False)
        known[1].append((reader.f_code, reader.f_lineno, what, _compat.version_of(tensor)))
        if what in UPDATES and tensor.requires_grad and tensor.is_leaf:
            for told in self.on_update:
                told(tensor, Note(self.next(), what, (reader.f_code.co_filename, reader.f_lineno)))

    def writes_to(self, tensor: Tensor, since: int) -> list[Note]:
        """Return the noted writes to a tensor's memory that made it newer than a version."""
        known = self._writes.get(_compat.storage_id(tensor))
        found = [write for write in known[1] if write[3] > since] if known is not None else []
        return [Note(0, what, (code.co_filename, line), version, code=code) for code, line, what, version in found]

    def left(self, what: str, frame: FrameType) -> None:
        """Note that a line left the graph."""
        reader = calling_frame(frame)
        if reader is not None:
            at = (reader.f_code.co_filename, reader.f_lineno)
            self.cuts[what, *at] = Note(self.next(), what, at)
            self.cuts.move_to_end((what, *at))
            if len(self.cuts) > CUTS:
                self.cuts.popitem(last=False)

    def ran(self, roots: Any, retain: bool, create: bool, frame: FrameType) -> None:
        """Note a backward that ended well."""
        self.stepping = False
        reader = calling_frame(frame)
        if reader is None:
            return
        tensors = [root for root in roots if isinstance(root, Tensor) and root.grad_fn is not None]
        made = max((_compat.made_at(tensor.grad_fn) for tensor in tensors), default=0)
        at = (reader.f_code.co_filename, reader.f_lineno)
        once = tuple(_once(tensors)) if create else ()
        self.backwards.append(Note(self.next(), "backward", at, made=made, keeps=retain or create, once=once))
        for told in self.after_backward:
            told(self.backwards[-1])


def _once(roots: list[Tensor]) -> list[type]:
    """Return the Functions of a graph whose backward can be differentiated no further."""
    found = [function for node in walk(roots).nodes if (function := function_of(node)) is not None]
    return [function for function in dict.fromkeys(found) if _compat.is_once_differentiable(getattr(function, "backward", None))]


class Patches:
    """The wrapped names, and how to restore them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Wrap what writes in place, what leaves the graph, and backward."""
        for name in _compat.writing_methods():
            self._replace(torch.Tensor, name, _writer(self._journal, name, getattr(torch.Tensor, name)))
        for owner, name in _compat.writing_functions():
            self._replace(owner, name, _writer(self._journal, name, getattr(owner, name)))
        for name in _LEAVES:
            self._replace(torch.Tensor, name, _leaver(self._journal, name, getattr(torch.Tensor, name)))
        self._replace(torch.Tensor, "data", _data(self._journal))
        for mode in (torch.no_grad, torch.inference_mode):
            self._replace(mode, "__enter__", _enterer(self._journal, mode.__name__, mode.__enter__))
        self._undo.append(_compat.on_backward(self._journal.ran))

    def remove(self) -> None:
        """Restore every name."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        own = name in vars(owner)
        original = vars(owner).get(name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))


def _writer(journal: Journal, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    wrote = journal.wrote

    @functools.wraps(original)
    def write(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not journal.stepping and args:
            try:
                wrote(args[0], name, sys._getframe(1))
            except _STRANGE:
                return result
        return result

    return _compat.traced_as(write, original)


def _leaver(journal: Journal, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    casts = name in _CASTS

    @functools.wraps(original)
    def leave(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if self.requires_grad and not journal.stepping and torch.is_grad_enabled() and not (casts and getattr(result, "requires_grad", True)):
            _quietly(journal.left, name, sys._getframe(1))
        return result

    return _compat.traced_as(leave, original)


def _data(journal: Journal) -> property:
    base: Any = torch._C.TensorBase.data

    def get(self: Tensor) -> Any:
        if self.requires_grad and not journal.stepping and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            _quietly(journal.left, "data", sys._getframe(1))
        return base.__get__(self)

    return property(get, base.__set__, base.__delete__)


def _enterer(journal: Journal, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def enter(self: Any) -> Any:
        if not journal.stepping and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            frame = sys._getframe(1)
            decorated = frame.f_back if frame.f_code.co_filename.endswith("_contextlib.py") else frame
            if decorated is not None and is_readers(decorated.f_code.co_filename):
                _quietly(journal.left, name, decorated)
        return original(self)

    return _compat.traced_as(enter, original)


def _quietly(note: Callable[..., None], *args: Any) -> None:
    """Note it; a tensor of a strange kind (fake, without storage) is left out."""
    with contextlib.suppress(*_STRANGE):
        note(*args)
