"""Numbers among the arguments that say which axis: counted from the front or from the end, they are the same axis."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from .evaluate import UserCodeError
from .probe import Probe
from .variants import Variant

_AXIS = re.compile(r"(^|_)(dim|axis)\d?$", re.IGNORECASE)


def same_axes(probe: Probe) -> Iterator[tuple[Variant, str]]:
    """Yield the call with an axis counted from the other end, where forward returns the same bit for bit, and how the sample says it."""
    exact = probe.exact
    ranks = sorted({leaf.template.dim() for leaf in exact.wanted if leaf.template.dim()}, reverse=True)
    for name, value in exact.named:
        if not _AXIS.search(name) or type(value) is not int:
            continue
        for other in (value - rank if value >= 0 else value + rank for rank in ranks if -rank <= value < rank):
            evaluator = exact.variant({name: other})
            try:
                same = all(map(torch.equal, exact.values(), evaluator.values()))
            except (UserCodeError, RuntimeError):
                continue
            if same and not _of_any_axis(probe, name, (value, other)):
                yield Variant(name, f"{name}={other}", evaluator), f"{name}={value}"
                break


def _of_any_axis(probe: Probe, name: str, of: tuple[int, int]) -> bool:
    """Whether forward returns the same for a third axis too, and so does not count axes with this number."""
    rank = max(leaf.template.dim() for leaf in probe.exact.wanted)
    third = next((n for n in range(rank) if n % rank not in {m % rank for m in of}), None)
    if third is None:
        return False
    try:
        return all(map(torch.equal, probe.exact.values(), probe.exact.variant({name: third}).values()))
    except (UserCodeError, RuntimeError):
        return False
