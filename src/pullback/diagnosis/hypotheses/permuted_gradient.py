"""got holds the right numbers in the wrong places."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch
from ._terms import Term, factors


class PermutedGradient(Hypothesis):
    """The gradient is transposed, flipped, rolled or reshaped in the wrong order."""

    name = "permuted-gradient"
    rank = 18

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        dims = mismatch.expected.dim()
        shape = mismatch.expected.shape
        for order in itertools.permutations(range(dims)) if dims <= 4 else ():
            if order == tuple(range(dims)):
                continue
            if tuple(shape[i] for i in order) == tuple(shape):
                yield Fit(f"the gradient is permuted by {order}", lambda m, order=order: m.expected.permute(order), "transpose the gradient back")
            yield Fit(
                f"the gradient is laid out in the order {order} and then reshaped",
                lambda m, order=order: m.expected.permute(order).reshape(m.expected.shape),
                "transpose before reshaping",
            )
        for text, turn, fix in turns(mismatch.expected):
            yield Fit(f"the gradient is {text}", lambda m, turn=turn: turn(m.expected), fix)


class PermutedPart(Hypothesis):
    """A sum over other elements is taken in the wrong direction before the local factor is multiplied in."""

    name = "permuted-gradient"
    rank = 23

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for name, factor in factors(mismatch):
            value = factor(mismatch)
            if value is None or value.shape != mismatch.expected.shape or not bool((value != 0).all()):
                continue
            for text, turn, fix in turns(mismatch.expected):
                yield Fit(
                    f"what is multiplied with {name} is {text}",
                    lambda m, factor=factor, turn=turn: _turned_inside(m, factor, turn),
                    fix,
                )


def turns(expected: Tensor) -> Iterator[tuple[str, Callable[[Tensor], Tensor], str]]:
    """Yield ways in which elements change places along one dimension: words, the change, and what mends it."""
    for dim in range(expected.dim()):
        yield f"reversed along dim {dim}", lambda t, dim=dim: t.flip(dim), f"flip the gradient along dim {dim}"
        for shift in (1, -1):
            text = f"shifted by {shift:+d} along dim {dim}"
            yield text, lambda t, dim=dim, shift=shift: t.roll(shift, dim), "check the index: it is off by one"


def _turned_inside(m: Mismatch, factor: Term, turn: Callable[[Tensor], Tensor]) -> Tensor | None:
    value = factor(m)
    return None if value is None or value.shape != m.expected.shape else value * turn(m.expected / value)
