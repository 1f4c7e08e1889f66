"""Errors about how an op is written, and where things were written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn


class OpError(RuntimeError):
    """An op or one of its rules is written in a way that cannot be right, or is asked for a derivative that it does not have.

    Not a TypeError: an operator of Tensor turns one that is raised inside it into "unsupported operand types".
    """


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's source."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def place_of(function: Any) -> Place:
    """Where `function` is defined."""
    code = getattr(function, "__code__", None)
    if isinstance(function, FunctionType) and code is not None:
        return Place(code.co_filename, code.co_firstlineno)
    return Place("<unknown>", 0)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest of `known`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names for a message: ``'w', 'x'`` or ``none``."""
    return ", ".join(repr(name) for name in names) or "none"


def refuse_gradient(op: str, argument: str, place: Place) -> NoReturn:
    """Raise for an argument that requires grad and has no rule."""
    raise OpError(
        f"{op}: the argument {argument!r} requires grad, but {op} ({place}) has no rule for it. "
        f'Write one with @{op}.vjp("{argument}"), or declare @pb.op(static=("{argument}",)) if it is never differentiated.'
    )
