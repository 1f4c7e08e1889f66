"""The same call with more rows: what shows only on longer reductions."""

from __future__ import annotations

import torch

from .evaluate import Evaluator, UserCodeError, copy_tensor


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
