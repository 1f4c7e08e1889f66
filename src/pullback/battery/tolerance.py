"""Every tolerance of the battery, derived from dtype, noise and step; nothing here is tuned to a test.

Each function returns a number; `WHY_*` says in a few words where it comes from, for the printed evidence.
"""

from __future__ import annotations

import torch
from torch import Tensor

SIGMAS = 8.0
WHY_DIFFERENCE = "measured rounding noise and truncation of the difference quotient"
WHY_ANALYTIC = "half the digits of the dtype, relative to the largest entry"
WHY_LINEAR = "rounding of the dtype, relative to the largest entry"

BASE_STEP = 2.0**-14
"""Step of the five-point stencil in float64, relative to the largest |x|: rounding 1e-12, truncation 1e-8 (measured, and part of the tolerance)."""

SKETCH_STEP = 2.0**-17
"""Step of the first pass: small, since a step that crosses a kink of one of 1,000 elements sends the whole pass to the careful test."""

SHARP = 1e-7
"""The first pass only decides where its tolerance is at most this part of the compared number; elsewhere the careful test does."""

NARROW = 4 * 2.0**-23
"""Relative error of a float64 gradient that was computed in float32: some roundings of 2^-24 each."""

NOISY = 1e-6
"""Relative noise of a forward from which single difference quotients are too coarse, and many are pooled (bfloat16 and float16)."""

ROUGH = 0.2
"""Second and third differences of a kink inside a stencil reach at least 0.2 of the slope; those of a smooth function stay below it."""

KINKED = 1 / 8
"""Where a larger part of the outputs has a kink inside the stencil, no claim is made: more of them lie there unseen."""


def eps(dtype: torch.dtype) -> float:
    """Return the machine epsilon of a floating or complex dtype."""
    return torch.finfo(dtype).eps


def sketch_rounding(values_norm: Tensor | float, step: float) -> Tensor | float:
    """Return the rounding part of a central difference's tolerance, for a forward whose relative noise is up to 64 eps."""
    return 64 * eps(torch.float64) * values_norm / step


def noisy_step(relative_noise: float) -> float:
    """Return the step that balances noise/step against step² for a forward with this relative noise."""
    return float(min(0.125, max(BASE_STEP, relative_noise ** (1 / 3))))


def analytic(dtype: torch.dtype, scale: float) -> float:
    """Return how far two right gradients computed by different formulas may lie apart, given their largest entry."""
    return eps(dtype) ** 0.5 * scale


def linear(dtype: torch.dtype, scale: float, terms: int = 1) -> float:
    """Return how far sums and multiples of a linear map's results may lie apart: rounding of each result, growing with the root of its terms."""
    return 32 * eps(dtype) * scale * max(1.0, float(terms)) ** 0.5
