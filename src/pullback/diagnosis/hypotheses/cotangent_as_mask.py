"""grad_output is used for its sign or for being non-zero only."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch

FORMS = {
    "grad_output is used as a mask (where it is not zero), not as a factor": lambda c: (c != 0).to(c.dtype),
    "grad_output is used as a mask (where it is positive), not as a factor": lambda c: (c > 0).to(c.dtype),
    "only the sign of grad_output is used": torch.sgn,
    "only the positive part of grad_output is used": lambda c: c.clamp(min=0),
    "grad_output is clipped to [-1, 1]": lambda c: c.clamp(-1, 1),
}


class CotangentAsMask(Hypothesis):
    """grad_output is used for its sign or support, not as a factor."""

    name = "cotangent-as-mask"
    rank = 16

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if any(c.is_complex() for c in mismatch.cotangents.values()):
            return
        for text, function in FORMS.items():

            def predict(m: Mismatch, function=function) -> Tensor | None:
                return m.vjp(m.path, cotangents={p: function(c) for p, c in m.cotangents.items()})

            yield Fit(text, predict, "multiply the gradient with grad_output")
