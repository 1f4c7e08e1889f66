"""got does not depend on grad_output."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class IgnoresCotangent(Hypothesis):
    """grad_output is never multiplied in, or only one entry of it is."""

    name = "ignores-cotangent"
    rank = 14

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        yield Fit(
            "grad_output is ignored: the gradient is the one for grad_output = 1",
            lambda m: m.vjp(m.path, cotangents={p: torch.ones_like(c) for p, c in m.cotangents.items()}),
            "multiply the gradient with grad_output",
            "returned * grad_output",
        )
        yield Fit(
            "only the first entry of grad_output is used, for every element",
            lambda m: m.vjp(m.path, cotangents={p: c.flatten()[:1].expand(c.numel()).reshape(c.shape) for p, c in m.cotangents.items() if c.numel()}),
            "multiply with the whole grad_output, element by element",
        )
        yield Fit(
            "the mean of grad_output is used for every element",
            lambda m: m.vjp(m.path, cotangents={p: c.mean().expand(c.shape) for p, c in m.cotangents.items()}),
            "multiply with the whole grad_output, element by element",
        )
