"""Containers of tensors as flat lists of leaves with readable paths, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(path, leaf)`` for every non-container inside `value`, in a stable order.

    Lists, tuples, named tuples, mappings and dataclass instances are containers; paths read like Python: ``params[0]``, ``cfg.weight``, ``d['k']``.
    An object that contains itself is visited once.
    """
    yield from _leaves(value, path, frozenset())


def _leaves(value: Any, path: str, above: frozenset[int]) -> Iterator[tuple[str, Any]]:
    parts = _parts(value, path)
    if parts is None or id(value) in above:
        yield path, value
        return
    above = above | {id(value)}
    for child_path, child in parts:
        yield from _leaves(child, child_path, above)


def map_leaves(function: Callable[[str, Any], Any], value: Any, path: str = "") -> Any:
    """Return `value` with every leaf replaced by ``function(path, leaf)``; containers are rebuilt with their own types."""
    parts = _parts(value, path)
    if parts is None:
        return function(path, value)
    children = [map_leaves(function, child, child_path) for child_path, child in parts]
    return rebuild(value, children)


def is_container(value: Any) -> bool:
    """Return whether `leaves` looks inside `value`."""
    return isinstance(value, (list, tuple, dict)) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _parts(value: Any, path: str) -> list[tuple[str, Any]] | None:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f"{path}.{name}" if path else name, getattr(value, name)) for name in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and isinstance(value, dict):
        return [(f"{path}[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return [(f"{path}.{name}" if path else name, getattr(value, name)) for name in names]
    return None


def rebuild(value: Any, children: list[Any]) -> Any:
    """Return a container like `value` that holds `children` in the order of `leaves`' parts."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*children)
    if isinstance(value, (list, tuple)):
        try:
            return type(value)(children)
        except TypeError:
            return tuple(children) if isinstance(value, tuple) else list(children)
    if isinstance(value, dict):
        import copy

        new = copy.copy(value)
        for key, child in zip(value, children, strict=True):
            new[key] = child
        return new
    import copy

    new = copy.copy(value)
    names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
    for name, child in zip(names, children, strict=True):
        object.__setattr__(new, name, child)
    return new
