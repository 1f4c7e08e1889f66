"""got = expected / n where n is the number of elements summed over, or the other way round."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch
from .constant_factor import ratio


class MeanForSum(Hypothesis):
    """A mean stands where the gradient needs a sum over broadcast or batch elements, or a sum where it needs a mean."""

    name = "mean-for-sum"
    rank = 9

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        factor = ratio(mismatch)
        if factor is None or factor < 0:
            return
        for path, output in mismatch.outputs.items():
            summed = output.numel() / mismatch.expected.numel() if mismatch.expected.numel() else 1.0
            if summed <= 1 or summed != int(summed):
                continue
            if math.isclose(factor, 1 / summed, rel_tol=1e-9):
                yield Fit(
                    f"the gradient is the mean over the {int(summed)} elements of {path} that share one of {mismatch.path}; it must be their sum",
                    lambda m, path=path: m.expected * m.expected.numel() / m.outputs[path].numel(),
                    "sum over the broadcast dimensions instead of averaging",
                )
