"""got is right except for a block that is zero, or repeats another."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import AGREES, Fit, Mismatch


class PartialRows(Hypothesis):
    """A loop over blocks leaves the last block, the first chunk or every row but one without a gradient."""

    name = "partial-rows"
    rank = 13

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        got, expected = mismatch.got, mismatch.expected
        wrong = (got - expected).abs() > AGREES * expected.abs().max() if expected.numel() else torch.zeros(())
        for dim in range(expected.dim()):
            lines = wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1).any(1)
            hit = lines.nonzero().flatten().tolist()
            if not hit or len(hit) == wrong.shape[dim] or hit != list(range(hit[0], hit[-1] + 1)):
                continue
            start, stop = hit[0], hit[-1] + 1
            edge = "the last" if stop == wrong.shape[dim] else "the first" if start == 0 else "some"
            yield Fit(
                f"{edge} {stop - start} of {wrong.shape[dim]} slices along dim {dim} get no gradient (the block {start} … {stop - 1} stays zero)",
                lambda m, dim=dim, start=start, stop=stop: _zeroed(m.expected, dim, start, stop),
                "check the loop bounds and the mask of the last block",
            )


def _zeroed(expected: Tensor, dim: int, start: int, stop: int) -> Tensor:
    index = torch.arange(start, min(stop, expected.shape[dim]), device=expected.device)
    return expected.index_fill(dim, index, 0)
