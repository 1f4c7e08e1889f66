"""The same call with square matrices, for flags that forward takes only then: those that transpose."""

from __future__ import annotations

from dataclasses import replace

from .evaluate import Evaluator, UserCodeError
from .sizes import Resizer, resizable_leaves, symbols
from .variants import Variant

SIDE = 5
MATRICES = 2


def with_squares(variant: Variant) -> Variant | None:
    """Return the call with a flag and with all matrices square, where forward refuses it only as the sample's are; None otherwise."""
    if not isinstance(variant.value, bool) or not _refused(variant.evaluator):
        return None
    square = _squared(variant.evaluator)
    return None if square is None or _refused(square) else replace(variant, name=f"{variant.name} and square matrices", evaluator=square)


def _squared(evaluator: Evaluator) -> Evaluator | None:
    """The call with the last two axes of all matrices, and what else is as long as one of them, of one size."""
    matrices = [leaf for leaf in resizable_leaves(evaluator) if leaf.template.dim() >= MATRICES]
    sides = {n for leaf in matrices for n in leaf.template.shape[-MATRICES:]}
    if len(matrices) < MATRICES or len(sides) < MATRICES or 1 in sides:
        return None
    square: Evaluator | None = evaluator
    for symbol in symbols(evaluator):
        if symbol.size in sides and square is not None:
            square = Resizer(square).resized(symbol.without_numbers(), SIDE)
    return square


def _refused(evaluator: Evaluator) -> bool:
    try:
        return not evaluator.forward().carrying
    except UserCodeError:
        return True
