"""A factor as a person would say it, and what undoes it."""

from __future__ import annotations

import math
from fractions import Fraction

ROOTS = {"sqrt(2)": math.sqrt(2), "1/sqrt(2)": math.sqrt(0.5)}
CLOSE = 1e-6
"""Relative: a factor is read off a gradient, and known as well as that."""
LARGEST = 64
"""Of the numerators and denominators of the fractions that are said as such."""


def said(factor: float) -> str:
    """Return the factor in words: ``2``, ``-1/2``, ``sqrt(2)``, ``1.5``, ``7/3``, and digits where it is nothing simple."""
    if factor < 0:
        return f"-{said(-factor)}"
    root = next((name for name, value in ROOTS.items() if math.isclose(factor, value, rel_tol=CLOSE)), None)
    if root is not None:
        return root
    fraction = _fraction(factor)
    plain = fraction is None or (_short(factor) and fraction.numerator != 1)
    return f"{factor:.6g}" if plain else str(fraction)


def undone(factor: float, what: str = "the gradient") -> str:
    """Return what to do about a gradient that is `factor` times what it should be: ``divide the gradient by 1.5``."""
    if math.isclose(factor, -1, rel_tol=CLOSE):
        return f"change the sign of {what}"
    verb, number = _undoing(factor)
    return f"{verb} {what} by {number}"


def _undoing(factor: float) -> tuple[str, str]:
    inverse = 1 / factor
    if _whole(inverse) or (not _whole(factor) and said(factor).count("/") and not said(inverse).count("/")):
        return "multiply", said(inverse)
    return "divide", said(factor)


def _fraction(factor: float) -> Fraction | None:
    near = Fraction(factor).limit_denominator(LARGEST)
    simple = 0 < near.numerator <= LARGEST and math.isclose(float(near), factor, rel_tol=CLOSE)
    return near if simple else None


def _whole(factor: float) -> bool:
    return abs(factor) > 0.5 and math.isclose(factor, round(factor), rel_tol=CLOSE)


def _short(factor: float) -> bool:
    """Whether four digits tell the factor."""
    return math.isclose(float(f"{factor:.4g}"), factor, rel_tol=CLOSE)
