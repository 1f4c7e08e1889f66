"""What the checked code keeps outside of its calls: module globals, class attributes, containers and caches in them; and how to put them back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from ..capture.calls import Function, Target

DEPTH = 3
LARGEST = 1 << 20
LONGEST = 10_000
_CACHED = type(functools.cache(int))


class Snapshot:
    """The state of the modules in which a target is defined: their globals, and the attributes of the classes they define.

    Args:
        target: The checked op.
    """

    def __init__(self, target: Target) -> None:
        self._namespaces = [(owner, dict(vars(owner))) for owner in _owners(target)]
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._caches: dict[int, tuple[Any, int]] = {}
        for _, names in self._namespaces:
            for name, value in names.items():
                if not name.startswith("__"):
                    self._remember(value, DEPTH)

    def _remember(self, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            if value.numel() <= LARGEST and _holds_numbers(value):
                self._tensors[id(value)] = value, value.detach().clone()
            return
        if isinstance(value, _CACHED):
            self._caches[id(value)] = value, value.cache_info().currsize
            return
        if depth == 0 or id(value) in self._containers or not isinstance(value, (MutableMapping, MutableSequence, MutableSet)):
            return
        with suppress(Exception):
            if len(value) > LONGEST:
                return
            items = dict(value) if isinstance(value, MutableMapping) else list(value)
            self._containers[id(value)] = value, items
            for item in items.values() if isinstance(items, dict) else items:
                self._remember(item, depth - 1)

    def restore(self) -> None:
        """Put globals, class attributes, containers, tensors and caches back to what they were when the snapshot was taken."""
        for owner, names in self._namespaces:
            _restore_names(owner, names)
        for value, items in self._containers.values():
            with suppress(Exception):
                _restore_container(value, items)
        for tensor, values in self._tensors.values():
            if tensor.shape == values.shape and not torch.equal(tensor.detach(), values):
                tensor.data.copy_(values)
        for cache, size in self._caches.values():
            with suppress(Exception):
                if size == 0 and cache.cache_info().currsize:
                    cache.cache_clear()


@contextmanager
def pristine(snapshot: Snapshot, target: Target) -> Iterator[None]:
    """Work in the state of `snapshot`; the state found is put back afterwards."""
    now = Snapshot(target)
    snapshot.restore()
    try:
        yield
    finally:
        now.restore()


def _holds_numbers(tensor: Tensor) -> bool:
    """Whether there are entries to remember and to put back: none on the meta device, and of subclasses nothing is known."""
    return tensor.layout is torch.strided and tensor.device.type != "meta" and type(tensor) in (Tensor, torch.nn.Parameter)


def _owners(target: Target) -> list[Any]:
    call = target.call
    function = target.function
    described = function or target.described
    names = [described.__module__] if described is not None else []
    names += [n for n in (getattr(call, "__module__", None), type(call).__module__) if isinstance(n, str)]
    owners: dict[int, Any] = {}
    for name in names:
        module = sys.modules.get(name)
        if module is None or _foreign(name):
            continue
        owners[id(module)] = module
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name:
                owners[id(value)] = value
    for base in function.__mro__ if function is not None else ():
        if base is not Function and issubclass(base, Function) and not _foreign(base.__module__):
            owners[id(base)] = base
    return list(owners.values())


def _foreign(name: str) -> bool:
    return name.partition(".")[0] in ("torch", "builtins", "pullback", "functools", "numpy")


def _restore_names(owner: Any, names: dict[str, Any]) -> None:
    now = dict(vars(owner))
    for name, value in names.items():
        if name not in now or now[name] is not value:
            with suppress(AttributeError, TypeError):
                setattr(owner, name, value)
    for name in now.keys() - names.keys():
        if not name.startswith("__"):
            with suppress(AttributeError, TypeError):
                delattr(owner, name)


def _restore_container(value: Any, items: Any) -> None:
    if isinstance(value, MutableMapping):
        if value.keys() != items.keys() or any(value[k] is not v for k, v in items.items()):
            value.clear()
            value.update(items)
    elif isinstance(value, MutableSet):
        value.clear()
        for item in items:
            value.add(item)
    elif len(value) != len(items) or any(a is not b for a, b in zip(value, items, strict=True)):
        value[:] = items
