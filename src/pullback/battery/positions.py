"""Other values of numbers that point at an entry (`blank`, `ignore_index`, `padding_idx`), such as inputs like the sample can mean."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .tensors import all_same
from .variants import Variant

_BLANK = re.compile(r"(^|_)blank(_|$)", re.IGNORECASE)
_SKIPPED = re.compile(r"(ignore|pad|padding|void)_?(idx|index|id|label)$", re.IGNORECASE)
TRIED = 2


def other_positions(probe: Probe) -> Iterator[Variant]:
    """Yield the call with a blank that no label is, and with an entry to be skipped that an index argument holds, where forward tells it apart."""
    exact = probe.exact
    for name, value in exact.named:
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        for number in _candidates(exact, name, value)[:TRIED]:
            evaluator = exact.variant({name: number})
            if _tells_apart(exact, evaluator):
                yield Variant(name, f"{name}={number}", evaluator)


def _candidates(evaluator: Evaluator, name: str, value: int) -> list[int]:
    held = _held(evaluator)
    if _BLANK.search(name):
        classes = min((leaf.template.shape[-1] for leaf in evaluator.wanted if leaf.template.dim() > 1), default=0)
        return [n for n in (classes - 1, *range(classes)) if n not in held and n != value] if held and 0 <= value < classes else []
    if _SKIPPED.search(name) and len(held) > 1:
        return [n for n in held if n != value]
    return []


def _held(evaluator: Evaluator) -> list[int]:
    """The entries of the index arguments."""
    whole = [leaf.template for leaf in evaluator.leaves if leaf.template.dtype in (torch.int64, torch.int32) and leaf.template.numel() > 1]
    return list(dict.fromkeys(int(n) for t in whole for n in t.reshape(-1)[:16]))


def _tells_apart(before: Evaluator, after: Evaluator) -> bool:
    """Whether forward takes the number and returns something else for it, of the same shapes and finite."""
    try:
        here, there = before.values(), after.values()
    except UserCodeError:
        return False
    return [y.shape for y in here] == [y.shape for y in there] and not all_same(here, there) and all(bool(torch.isfinite(y).all()) for y in there)
