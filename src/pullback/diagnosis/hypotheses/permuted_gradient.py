"""got holds the right numbers in the wrong places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


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
        for dim in range(dims):
            yield Fit(f"the gradient is reversed along dim {dim}", lambda m, dim=dim: m.expected.flip(dim), f"flip the gradient along dim {dim}")
            for shift in (1, -1):
                yield Fit(
                    f"the gradient is shifted by {shift:+d} along dim {dim}",
                    lambda m, dim=dim, shift=shift: m.expected.roll(shift, dim),
                    "check the index: it is off by one",
                )
