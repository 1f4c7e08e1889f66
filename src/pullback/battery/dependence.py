"""Does the forward depend on an input, smoothly, and which outputs do?"""

from __future__ import annotations

import torch

from . import numeric
from .evaluate import Evaluator, UserCodeError
from .tensors import differentiable
from .value import spread


def smooth_dependence(evaluator: Evaluator, path: str, seed: int) -> list[str]:
    """Return the paths of the floating outputs that have a derivative in the input at `path` which is not zero.

    Steps and jumps do not count, and neither does anything that the forward's rounding noise could explain.

    Raises:
        UserCodeError: if the op raises at the given values.
    """
    x = next(leaf.template for leaf in evaluator.leaves if leaf.path == path)
    generator = torch.Generator().manual_seed(seed + 0xDE9E)
    outcome = evaluator.forward()
    kept = [i for i, y in enumerate(outcome.outputs) if differentiable(y)]
    sizes = [(2 if outcome.outputs[i].is_complex() else 1) * outcome.outputs[i].numel() for i in kept]

    def evaluate(values=None):
        return numeric.flat(evaluator.values(values))

    try:
        found = numeric.slopes(evaluate, path, x, spread(x.shape, x.is_complex(), generator), evaluate())
    except UserCodeError:
        return []
    least = torch.minimum(found.low.abs(), found.high.abs())
    moving = found.measured & (found.low * found.high > 0) & (least > 2 * found.slack + 16 * found.noise)
    if moving.numel() != sum(sizes):
        return []
    return [outcome.paths[i] for i, part in zip(kept, moving.split(sizes), strict=True) if bool(part.any())]
