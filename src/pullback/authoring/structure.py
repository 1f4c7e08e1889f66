"""Containers of tensors as flat tuples of leaves and a spec made of plain constants, and back.

`torch.utils._pytree` would do, at 10 µs a call, without dataclasses, and with specs that a compiler cannot use as keys. A spec here is ``"*"`` for a
leaf, or nested tuples of strings and numbers, so it can be a dictionary key, a constant of a traced graph and a part of generated code.
"""

from __future__ import annotations

from typing import Any

import torch

LEAF = "*"
_TYPES: dict[str, type] = {}
_Tensor = torch.Tensor


class Outputs:
    """The last value a generated Function returns when its output is not a bare tensor or a plain tuple of tensors."""

    __slots__ = ("changed", "count", "spec")

    def __init__(self, spec: Any, count: int) -> None:
        self.spec = spec
        self.count = count
        self.changed: tuple[int, ...] = ()


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Append the leaves of `value` to `leaves` and return its spec. Lists, tuples, named tuples, dicts and dataclass instances are containers."""
    if isinstance(value, _Tensor):
        leaves.append(value)
        return LEAF
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", None)
        if fields is None:
            return ("tuple", tuple([flatten(item, leaves) for item in value]))
        return ("namedtuple", _token(type(value)), tuple([flatten(item, leaves) for item in value]))
    if isinstance(value, list):
        return ("list", tuple([flatten(item, leaves) for item in value]))
    if isinstance(value, dict):
        return ("dict", _token(type(value)), tuple(value), tuple([flatten(item, leaves) for item in value.values()]))
    if hasattr(type(value), "__dataclass_fields__"):
        names = tuple([name for name in type(value).__dataclass_fields__ if hasattr(value, name)])
        return ("dataclass", _token(type(value)), names, tuple([flatten(getattr(value, name), leaves) for name in names]))
    leaves.append(value)
    return LEAF


def holds_tensor(value: Any) -> bool:
    """Whether `value` is a container with a tensor somewhere inside."""
    if isinstance(value, _Tensor):
        return False
    if isinstance(value, (tuple, list)):
        items = list(value)
    elif isinstance(value, dict):
        items = list(value.values())
    elif hasattr(type(value), "__dataclass_fields__"):
        items = [getattr(value, name) for name in type(value).__dataclass_fields__ if hasattr(value, name)]
    else:
        return False
    for item in items:  # noqa: SIM110  a compiler traces the loop, not the generator
        if isinstance(item, _Tensor) or holds_tensor(item):
            return True
    return False


def count(spec: Any) -> int:
    """The number of leaves of `spec`."""
    return 1 if spec == LEAF else sum([count(child) for child in spec[-1]])


def build(spec: Any, leaves: Any) -> Any:
    """Return the container that `spec` describes with `leaves` inside; what `flatten` took apart."""
    if spec == LEAF:
        return leaves[0]
    if spec[0] == "tuple" and spec[1] == (LEAF,) * len(leaves):
        return tuple(leaves)
    return _build(spec, leaves, 0)[0]


def _build(spec: Any, leaves: Any, at: int) -> tuple[Any, int]:
    if spec == LEAF:
        return leaves[at], at + 1
    children = []
    for child in spec[-1]:
        value, at = _build(child, leaves, at)
        children.append(value)
    kind = spec[0]
    if kind == "tuple":
        return tuple(children), at
    if kind == "list":
        return children, at
    if kind == "namedtuple":
        return _TYPES[spec[1]](*children), at
    if kind == "dict":
        pairs = dict(zip(spec[2], children, strict=True))
        return (pairs if spec[1] == "builtins:dict" else _TYPES[spec[1]](pairs)), at
    return _remake(_TYPES[spec[1]], spec[2], children), at


def _remake(kind: Any, names: tuple[str, ...], children: list[Any]) -> Any:
    new = object.__new__(kind)
    for name, child in zip(names, children, strict=True):
        object.__setattr__(new, name, child)
    return new


def _token(kind: type) -> str:
    token = f"{kind.__module__}:{kind.__qualname__}"
    if _TYPES.setdefault(token, kind) is not kind:
        token = f"{token}:{id(kind)}"
        _TYPES[token] = kind
    return token


def paths(name: str, spec: Any) -> list[str]:
    """How each leaf of an argument is written in Python: ``params['k']``, ``items[0]``, ``cfg.weight``."""
    if spec == LEAF:
        return [name]
    kind, children = spec[0], spec[-1]
    if kind == "dict":
        parts = [f"{name}[{key!r}]" for key in spec[2]]
    elif kind == "dataclass":
        parts = [f"{name}.{field}" for field in spec[2]]
    elif kind == "namedtuple":
        parts = [f"{name}.{field}" for field in _TYPES[spec[1]]._fields]  # type: ignore[attr-defined]
    else:
        parts = [f"{name}[{i}]" for i in range(len(children))]
    return [path for part, child in zip(parts, children, strict=True) for path in paths(part, child)]


def describe(spec: Any) -> str:
    """A spec for an error message: ``dict with keys 'a', 'b'``."""
    if spec == LEAF:
        return "one value"
    if spec[0] == "dict":
        return "a dict with keys " + ", ".join(map(repr, spec[2]))
    if spec[0] in ("namedtuple", "dataclass"):
        return f"a {_TYPES[spec[1]].__name__}"
    return f"a {spec[0]} of {len(spec[-1])}"
