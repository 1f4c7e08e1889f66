"""The right gradient of a small op by difference quotients, entry by entry: for a forward that autograd cannot see (numpy, a kernel)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import numeric
from .evaluate import Evaluator, Outcome, UserCodeError
from .tensors import differentiable

ENTRIES = 64
SECONDS = 0.05
"""What one gradient may cost; the diagnosis asks for some hundred."""
STEP = 2.0**-10
"""Of the input's scale: rounding then leaves two digits more than the diagnosis asks for."""
WIDE = (torch.float64, torch.complex128)


class Differences(Evaluator):
    """An evaluator whose gradients are fourth-order central differences of its outputs."""

    def vjp(self, outcome: Outcome, cotangents: Sequence[Tensor | None], **how: Any) -> list[Tensor | None]:
        here = {leaf.path: t.detach() for leaf, t in zip(self.leaves, outcome.arguments.tensors, strict=True) if differentiable(leaf.template)}
        weights = {outcome.paths[i]: c for i, c in zip(outcome.carrying, cotangents, strict=True) if c is not None}
        return [self._gradient(leaf.path, here, weights) for leaf in self.wanted]

    def _gradient(self, path: str, here: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
        x = here[path]
        step = STEP * numeric.scale_of(x)
        parts = torch.view_as_real(x) if x.is_complex() else x
        found = torch.zeros_like(parts, memory_format=torch.contiguous_format)
        for i in range(parts.numel()):
            paired = {}
            for k in (-2, -1, 1, 2):
                moved = parts.contiguous().clone()
                moved.view(-1)[i] += k * step
                value = torch.view_as_complex(moved) if x.is_complex() else moved
                paired[k] = self._paired({**here, path: value}, weights)
            found.view(-1)[i] = numeric.central4(paired, step)
        return torch.view_as_complex(found) if x.is_complex() else found

    def _paired(self, values: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
        outcome = self.forward(values=values)
        outputs = dict(zip(outcome.paths, outcome.outputs, strict=True))
        return torch.stack([numeric.flat([outputs[p].detach()]) @ numeric.flat([w]) for p, w in weights.items()]).sum()


def by_differences(evaluator: Evaluator) -> Differences | None:
    """Return the call with gradients by differences, or None where they would be coarse or dear."""
    inputs = [leaf.template for leaf in evaluator.wanted]
    entries = sum(t.numel() * (2 if t.is_complex() else 1) for t in inputs)
    if not 0 < entries <= ENTRIES or any(t.dtype not in WIDE or t.device.type != "cpu" for t in inputs):
        return None
    found = Differences(
        evaluator.target,
        evaluator.args,
        evaluator.kwargs,
        wanted={leaf.path for leaf in evaluator.wanted},
        static=evaluator.static,
        nonleaf=evaluator.nonleaf,
    )
    found.hold_everything = evaluator.hold_everything
    try:
        outputs = found.forward().live
        cheap = min(_seconds(found) for _ in range(2)) * 4 * entries <= SECONDS
    except UserCodeError:
        return None
    return found if cheap and all(y.dtype in WIDE for y in outputs) else None


def _seconds(evaluator: Evaluator) -> float:
    start = time.thread_time()
    evaluator.forward()
    return time.thread_time() - start
