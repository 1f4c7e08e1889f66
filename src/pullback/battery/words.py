"""How names and numbers are put into findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DIGITS = 6
MOST = 17


def listed(names: Iterable[str]) -> str:
    """Return names as in a sentence: ``"a, b and c"``."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def gradient_name(path: str) -> str:
    """Return how messages call the gradient of an input: ``grad_x``, ``grad of params[0]``."""
    return f"grad_{path}" if path.isidentifier() else f"grad of {path}"


def told_apart(got: Any, expected: Any) -> tuple[str, str]:
    """Return two numbers with six digits, or as many more as it takes to tell unequal ones apart; whole numbers and bools as they are."""
    if isinstance(got, int) and isinstance(expected, int):
        return str(got), str(expected)
    first, second = _shown(got, expected)
    return first, second


def interval(got: float, low: float, high: float) -> tuple[str, str]:
    """Return a number, and the number or interval that it is compared with."""
    shown, lowest, highest = _shown(got, low, high)
    return shown, lowest if lowest == highest else f"{lowest} … {highest}"


def _shown(*numbers: complex) -> list[str]:
    digits = DIGITS
    while digits < MOST and len({f"{number:.{digits}g}" for number in numbers}) < len(set(numbers)):
        digits += 1
    return [f"{number:.{digits}g}" for number in numbers]
