"""The same call with more rows: what shows only on longer reductions."""

from __future__ import annotations

import time
from itertools import pairwise

import torch

from .evaluate import Evaluator, UserCodeError
from .tensors import copy_tensor

GROWTH = 4
SECONDS = 0.03


def repeated_rows(evaluator: Evaluator, elements: int) -> Evaluator | None:
    """Return the call with the rows of its tensors repeated until the largest has at least `elements` elements; None where forward refuses.

    All tensors whose leading size is that of the largest one grow together.
    """
    shaped = [leaf for leaf in evaluator.leaves if leaf.template.dim() and leaf.template.numel()]
    if not shaped:
        return None
    largest = max(shaped, key=lambda leaf: leaf.template.numel()).template
    times = -(-elements // largest.numel())
    if times <= 1:
        return evaluator
    values = {}
    for leaf in shaped:
        if leaf.template.shape[0] == largest.shape[0]:
            values[leaf.path] = copy_tensor(torch.cat([leaf.template] * times))
    larger = evaluator.variant(values)
    try:
        larger.forward()
    except UserCodeError:
        return None
    return larger


def grown(evaluator: Evaluator, elements: int) -> Evaluator | None:
    """Return the call with its rows repeated towards `elements` elements, as far as one pass stays within 30 ms; None where it cannot grow."""
    size = max((leaf.template.numel() for leaf in evaluator.leaves), default=0)
    steps = [size]
    while size and steps[-1] < elements:
        steps.append(min(elements, GROWTH * steps[-1]))
    best = None
    for _, step in pairwise(steps):
        start = time.thread_time()
        larger = repeated_rows(evaluator, step)
        if larger is None:
            break
        try:
            outcome = larger.forward()
            larger.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
        except UserCodeError:
            break
        if time.thread_time() - start > SECONDS:
            break
        best = larger
    return best
