"""How sizes, shapes, times and places read."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from ..report.clean import clean
from ..report.finding import Location

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """Return bytes for a reader: ``"96 B"``, ``"1.5 KiB"``."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if value < 1000 else f"{value:,.0f} {_UNITS[unit]}"


def value(dtype: Any, shape: Iterable[int]) -> str:
    """Return a tensor's dtype and shape: ``"float32 [3, 4]"``."""
    return _value(dtype, tuple(shape))


@functools.lru_cache(maxsize=4096)
def _value(dtype: Any, shape: tuple[int, ...]) -> str:
    return f"{str(dtype).removeprefix('torch.')} [{', '.join(map(str, shape))}]"


def duration(seconds: float) -> str:
    """Return a time for a reader: ``"12 µs"``, ``"3.1 ms"``, ``"2 s"``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def place(location: Location | None) -> str:
    """Return ``"ops.py:12"``; empty where the source is not known."""
    return clean(f"{location.path}:{location.line}", limit=200) if location else ""


def count(number: int, word: str) -> str:
    """Return ``"1 node"``, ``"3 nodes"``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
