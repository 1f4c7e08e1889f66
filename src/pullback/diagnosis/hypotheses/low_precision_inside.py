"""got is expected rounded to a narrower dtype."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch

NARROW = (torch.float32, torch.float16, torch.bfloat16)


class LowPrecisionInside(Hypothesis):
    """backward computes in a narrower dtype than its inputs have."""

    name = "low-precision-inside"
    rank = 30

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for dtype in NARROW:
            yield Fit(
                f"backward rounds to {str(dtype).removeprefix('torch.')} inside",
                lambda m, dtype=dtype: m.got if _rounded(m, dtype) else None,
                "keep the inputs' dtype, or accumulate in a wider one",
            )


def _rounded(m: Mismatch, dtype: torch.dtype) -> bool:
    """Whether got is representable in `dtype` or off by some of its units, elementwise, and not by more."""
    if m.got.is_complex():
        return False
    unit = torch.finfo(dtype).eps
    gap: Tensor = (m.got - m.expected).abs()
    small = gap <= 16 * unit * m.expected.abs() + 4 * unit * unit * m.expected.abs().max()
    return bool(small.all()) and float(gap.max()) > 1e-2 * unit * float(m.expected.abs().max())
