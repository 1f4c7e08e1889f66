"""Wrap forward and backward of every custom Function that is there, and of those that appear, until it is undone.

`apply` itself stays as it is, so one that was bound before is seen too: it looks its class's methods up at every call. A method that is called with
the `ctx` of a subclass or of a transform, or by hand, is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _compat
from .naming import argument_names, is_recorded, record_of
from .observe import Entry, Live, Observer, clock

Function = torch.autograd.Function


class Patches:
    """The wrapped methods of all classes, and how to restore them.

    Args:
        observer: Is told about every call.
        found: Called with the entry of each class that is wrapped.
    """

    def __init__(self, observer: Observer, found: Callable[[Entry], None]) -> None:
        self._observer = observer
        self._found = found
        self._undo: list[Callable[[], None]] = []
        self._entries: dict[type[Function], Entry] = {}

    def install(self) -> None:
        """Wrap every loaded class, and every class from now on."""
        self._undo.append(_compat.on_new_function(self.wrap))
        for function in _subclasses(Function):
            self.wrap(function)

    def remove(self) -> None:
        """Give every class its own methods back, where nobody else replaced them meanwhile."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def forget(self) -> None:
        """Forget every signature."""
        for entry in self._entries.values():
            entry.forget()

    def settle(self) -> None:
        """Write what was counted into the records."""
        self._observer.settle(self._entries.values())

    def wrap(self, function: type[Function]) -> None:
        """Wrap one class, if its calls are noted at all."""
        try:
            if not issubclass(function, Function) or not is_recorded(function) or function.forward is Function.forward:
                return
            entry = self._entries.get(function) or _entry(function)
        except Exception:  # a class with a metaclass or descriptors of its own is left alone
            return
        self._entries[function] = entry
        self._found(entry)
        self._wrap_methods(function, entry)

    def _wrap_methods(self, function: type[Function], entry: Entry) -> None:
        observer = self._observer
        backward = "vjp" if function.vjp is not Function.vjp and function.backward is Function.backward else "backward"
        if function.setup_context is Function.setup_context:
            self._replace(function, "forward", _forward(observer, entry, function.forward))
        else:
            self._replace(function, "forward", _plain_forward(observer, entry, function.forward))
            self._replace(function, "setup_context", _setup(observer, entry, function.setup_context))
        if getattr(function, backward) is not getattr(Function, backward):
            self._replace(function, backward, _backward(observer, entry, getattr(function, backward)))

    def _replace(self, function: type[Function], name: str, method: Callable[..., Any]) -> None:
        own = name in vars(function)
        original = vars(function).get(name)
        wrapped = staticmethod(method)
        setattr(function, name, wrapped)

        def undo() -> None:
            if vars(function).get(name) is not wrapped:
                return
            if own:
                setattr(function, name, original)
            else:
                delattr(function, name)

        self._undo.append(undo)


def _entry(function: type[Function]) -> Entry:
    record = record_of(function)
    return Entry(function, record, argument_names(function, record))


def _subclasses(base: type) -> Iterator[Any]:
    seen: set[type] = set()
    stack = [base]
    while stack:
        for found in stack.pop().__subclasses__():
            if found not in seen:
                seen.add(found)
                stack.append(found)
                yield found


def _wrapper(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Let `wrapper` pass for `original`; compilers trace the original."""
    functools.update_wrapper(wrapper, original)
    return _compat.traced_as(wrapper, original)


def _timed(observer: Observer, live: Live | None, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, float]:
    start = clock()
    try:
        result = original(*args, **kwargs)
    except BaseException:
        observer.raised(live)
        raise
    return result, clock() - start


def _forward(observer: Observer, entry: Entry, original: Callable[..., Any]) -> Callable[..., Any]:
    own = _compat.context_type(entry.function)

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not observer.active or not args or type(args[0]) is not own:
            return original(*args, **kwargs)
        live = observer.before_forward(entry, args[0], args[1:], kwargs)
        result, seconds = _timed(observer, live, original, args, kwargs)
        observer.after_forward(entry, args[0], live, result, seconds)
        return result

    return _wrapper(original, forward)


def _plain_forward(observer: Observer, entry: Entry, original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not observer.active:
            return original(*args, **kwargs)
        live = observer.before_forward(entry, None, args, kwargs)
        result, seconds = _timed(observer, live, original, args, kwargs)
        observer.after_forward(entry, None, live, result, seconds)
        return result

    return _wrapper(original, forward)


def _setup(observer: Observer, entry: Entry, original: Callable[..., Any]) -> Callable[..., Any]:
    own = _compat.context_type(entry.function)

    def setup_context(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        ctx = args[0] if args else kwargs.get("ctx")
        if observer.active and type(ctx) is own:
            observer.after_setup(entry, ctx)
        return result

    return _wrapper(original, setup_context)


def _backward(observer: Observer, entry: Entry, original: Callable[..., Any]) -> Callable[..., Any]:
    own = _compat.context_type(entry.function)

    def backward(*args: Any, **kwargs: Any) -> Any:
        if not observer.active or not args or type(args[0]) is not own:
            return original(*args, **kwargs)
        live = observer.before_backward(entry, args[0], args[1:])
        result, seconds = _timed(observer, live, original, args, kwargs)
        observer.after_backward(live, seconds)
        return result

    return _wrapper(original, backward)
