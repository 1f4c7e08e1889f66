"""Sizes that forward takes by accident, so that an error of backward there says nothing: an index no longer points at an entry, or rows regroup."""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import trees
from .evaluate import Evaluator, UserCodeError
from .sizes import Resizer, Symbol, symbols

_INDEX = re.compile(r"\bindex\b", re.IGNORECASE)
MORE = 4
"""By how much a size is made larger, to see what follows it."""


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
    before, after = _shapes(sample), _shapes(there)
    others = {other.size: other for other in symbols(sample) if other.size not in (1, symbol.size)}
    for i, (here, now) in enumerate(zip(before, after, strict=False)):
        for dim, (old, new) in enumerate(zip(here, now, strict=False)):
            if old in others and old != new and len(here) == len(now) and _follows(sample, others[old], i, dim):
                return f"forward makes {new} of {others[old].said} = {old}, which stays"
    return ""


def _follows(sample: Evaluator, symbol: Symbol, output: int, dim: int) -> bool:
    """Whether an axis of the results is as long as a size of the arguments whatever that is, and not by chance."""
    size = symbol.size + MORE
    changed = Resizer(sample).resized(symbol, size)
    shapes = [] if changed is None else _shapes(changed)
    return len(shapes) > output and len(shapes[output]) > dim and shapes[output][dim] == size


def _shapes(evaluator: Evaluator) -> list[tuple[int, ...]]:
    try:
        return [tuple(y.shape) for y in evaluator.values()]
    except UserCodeError:
        return []
