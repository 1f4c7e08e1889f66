"""Sizes that forward takes by accident, so that an error of backward there says nothing: an index no longer points at an entry, or rows regroup."""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import trees
from .evaluate import Evaluator, UserCodeError
from .sizes import Symbol, symbols

_INDEX = re.compile(r"\bindex\b", re.IGNORECASE)


def points_outside(sample: Evaluator, there: Evaluator, symbol: Symbol, size: int, error: UserCodeError, right: Callable[[Evaluator], bool]) -> str:
    """Return which number of the arguments pointed at an entry of the sample's axis and points at none of the changed one, in words.

    The error must name the number, and be gone once the number points at the last entry.

    Args:
        sample: The call at the sample's sizes.
        there: The call at the changed size.
        symbol: What changed.
        size: To what.
        error: What backward raised there.
        right: Whether the gradient of a call is right.
    """
    if not _INDEX.search(error.short):
        return ""
    for name, value in sample.named:
        for path, number in trees.leaves(value, name):
            if not isinstance(number, int) or isinstance(number, bool) or not size <= number < symbol.size:
                continue
            if re.search(rf"\b{number}\b", error.short) and right(there.variant({path: size - 1})):
                return f"{path} = {number} points at no entry then"
    return ""


def regroups(sample: Evaluator, there: Evaluator, symbol: Symbol) -> str:
    """Return which size of the arguments stays and yet becomes another one in forward's results, in words: the elements were cut up anew."""
    try:
        before, after = sample.values(), there.values()
    except UserCodeError:
        return ""
    others = {other.size: other for other in symbols(sample) if other.size not in (1, symbol.size)}
    for here, now in zip(before, after, strict=False):
        if here.dim() != now.dim():
            continue
        for old, new in zip(here.shape, now.shape, strict=True):
            if old in others and old != new:
                return f"forward makes {new} of {others[old].said} = {old}, which stays"
    return ""
