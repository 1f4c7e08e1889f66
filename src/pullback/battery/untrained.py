"""Rows of a table that are looked up but not trained: `padding_idx` of an embedding, which forward does not read."""

from __future__ import annotations

import re

import torch

from .evaluate import Evaluator, UserCodeError
from .tensors import all_same

_ROW = re.compile(r"pad(ding)?_?(idx|index|id)$", re.IGNORECASE)


def untrained_row(evaluator: Evaluator, path: str) -> str:
    """Return the name of the number that says which row of an input gets no gradient although forward uses it; empty where there is none.

    So it is for an index that holds the number, where forward returns the same whatever the number is, and backward zeros in that row.
    """
    table = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    for name, value in evaluator.named:
        row = value if isinstance(value, int) and not isinstance(value, bool) and _ROW.search(name) else None
        if row is None or table.dim() < 2 or not -len(table) <= row < len(table) or not _held(evaluator, row % len(table)):
            continue
        try:
            if all_same(evaluator.values(), evaluator.variant({name: (row + 1) % len(table)}).values()) and _is_zero(evaluator, path, row):
                return name
        except UserCodeError:
            continue
    return ""


def _held(evaluator: Evaluator, row: int) -> bool:
    whole = [leaf.template for leaf in evaluator.leaves if leaf.template.dtype in (torch.int64, torch.int32)]
    return any(bool((t == row).any()) for t in whole)


def _is_zero(evaluator: Evaluator, path: str, row: int) -> bool:
    outcome = evaluator.forward()
    gradients = evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
    gradient = next(g for leaf, g in zip(evaluator.wanted, gradients, strict=True) if leaf.path == path)
    return gradient is not None and not bool(gradient[row].any())
