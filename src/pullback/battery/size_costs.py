"""Which large size to try, and what a pass there is likely to cost."""

from __future__ import annotations

import math

import torch

from .evaluate import Evaluator
from .sizes import Symbol

LARGE = 1025
"""Just above the usual widest block of 1024."""
ELEMENTS = 65_536
"""Above this many elements 16-bit indices wrap, and grids of blocks get a second dimension."""
NARROW = 4
"""Rows of at most so many elements are made more than 65,536 themselves: a grid has at most 65,535 blocks but in its first dimension."""


def predicted(costs: list[tuple[int, float, int]], size: int) -> tuple[float, float]:
    """Return the seconds and output elements to expect at `size`, from the growth between the last two sizes that were tried."""
    if not costs:
        return 0.0, 0.0
    last = costs[-1]
    before = max((c for c in costs[:-1] if 0 < c[0] < last[0]), default=None)
    if before is None or last[0] >= size:
        return last[1], float(last[2])
    ratio = math.log(last[0] / before[0])
    growth = [min(4.0, max(least, math.log(max(last[k], 1e-9) / max(before[k], 1e-9)) / ratio)) for k, least in ((1, 0.0), (2, 0.0))]
    factor = size / last[0]
    return last[1] * factor ** growth[0], last[2] * factor ** growth[1]


def many_rows(evaluator: Evaluator, symbol: Symbol) -> int | None:
    """Return the size that brings the tensor of a batch axis above 65,536 elements, or None where several of its axes are tied."""
    path = symbol.axes[0][0]
    if not symbol.size or sum(p == path for p, _ in symbol.axes) != 1:
        return None
    template = next(leaf.template for leaf in evaluator.leaves if leaf.path == path)
    row = max(1, template.numel() // symbol.size)
    size = ELEMENTS + 1 if row <= NARROW else ELEMENTS // row + 2
    return size if size > LARGE and torch.Size([size]).numel() <= 2 * ELEMENTS else None
