"""The part of a gradient that goes through one intermediate of forward, and what the gradient is if that part is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..mismatch import Mismatch, agrees

LIMIT = 12


def paths(mismatch: Mismatch) -> Iterator[tuple[int, str]]:
    """Yield number and description of the intermediates through which some, but not all, of the gradient goes."""
    for n in range(LIMIT):
        found = mismatch.cut(n)
        if found is None:
            return
        place, rest = found
        if (
            rest.shape == mismatch.expected.shape
            and bool(torch.isfinite(rest.abs()).all())
            and bool(rest.any())
            and not agrees(rest, mismatch.expected)
        ):
            yield n, place


def along(m: Mismatch, n: int, change: Callable[[Tensor], Tensor | None]) -> Tensor | None:
    """Return the gradient with the part through intermediate `n` changed."""
    found = m.cut(n)
    if found is None or found[1].shape != m.expected.shape:
        return None
    changed = change(m.expected - found[1])
    return None if changed is None else found[1] + changed
