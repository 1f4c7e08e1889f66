"""The cotangent of one output is dropped or counted twice."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class OutputIgnored(Hypothesis):
    """The gradient of one output never reaches the input."""

    name = "output-ignored"
    rank = 8

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if len(mismatch.cotangents) < 2:
            return
        for path in mismatch.cotangents:
            yield Fit(
                f"the gradient of {path} is ignored",
                lambda m, path=path: m.vjp(m.path, cotangents={p: torch.zeros_like(c) if p == path else c for p, c in m.cotangents.items()}),
                f"add what grad_output of {path} contributes, or mark that output non-differentiable",
            )
