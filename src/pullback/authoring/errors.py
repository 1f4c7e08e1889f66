"""Errors about how an op is written, and where things were written."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any


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
        return f"{self.path}:{self.line}" if self.line else self.path


def place_of(function: Any) -> Place:
    """Where `function`, or what a callable object calls, is defined."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType):
        function = type(function).__call__
    if isinstance(function, FunctionType):
        return Place(function.__code__.co_filename, function.__code__.co_firstlineno)
    return Place("no Python source", 0)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest of `known`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names for a message: ``'w', 'x'`` or ``none``."""
    return ", ".join(repr(name) for name in names) or "none"
