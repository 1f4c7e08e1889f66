"""got is expected rounded to a narrower dtype."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch

NUDGE = 2.0**-7
"""How far inputs are moved, in units of the narrow dtype: it cannot tell, and every wider one can."""
NARROW = (torch.float32, torch.float16, torch.bfloat16)


class LowPrecisionInside(Hypothesis):
    """backward computes in a narrower dtype than its inputs have."""

    name = "low-precision-inside"
    rank = 30

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        own = torch.finfo(mismatch.got.dtype).eps
        for dtype in (d for d in NARROW if torch.finfo(d).eps > own):
            yield Fit(
                f"backward rounds to {str(dtype).removeprefix('torch.')} inside",
                lambda m, dtype=dtype: m.got if _rounded(m, dtype) else None,
                "keep the inputs' dtype, or accumulate in a wider one",
            )


def _rounded(m: Mismatch, dtype: torch.dtype) -> bool:
    """Whether got is off by some units of `dtype`, elementwise, and moves in steps as narrow numbers do, which a wrong formula does not."""
    if m.got.is_complex():
        return False
    unit = torch.finfo(dtype).eps
    gap: Tensor = (m.got - m.expected).abs()
    small = gap <= 16 * unit * m.expected.abs() + 4 * unit * unit * m.expected.abs().max()
    return (
        bool(small.all())
        and float(gap.max()) > 1e-2 * unit * float(m.expected.abs().max())
        and (_representable(m.got, dtype) or _stepped(m, NUDGE * unit))
    )


def _representable(got: Tensor, dtype: torch.dtype) -> bool:
    return bool((got.to(dtype).to(got.dtype) == got).all())


def _stepped(m: Mismatch, nudge: float) -> bool:
    """Whether most elements stay the same to the last bit when the inputs move by less than narrow numbers can tell."""
    moved = m.nudged(nudge)
    right = m.expected != 0
    return moved is not None and moved.shape == m.got.shape and bool(right.any()) and float((moved == m.got)[right].double().mean()) > 0.5
