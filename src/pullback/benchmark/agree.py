"""Whether two contenders compute the same: a race against something else is worth nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call, tensors_in

SEED = 0
LOOSE = 64.0
"""How many square roots of the machine epsilon results may differ by: far beyond rounding, far below another function."""


def disagreement(call: Call, other: Call) -> str:
    """Return how the results or gradients of another contender differ, in words; empty where they agree."""
    ours, theirs = _values(call), _values(other)
    for what, first, second in zip(("results", "gradients"), ours, theirs, strict=True):
        gap = _gap(first, second)
        if gap:
            return f"{other.name} computes something else than {call.name}: its {what} differ {gap}"
    return ""


def _values(call: Call) -> tuple[list[Tensor], list[Tensor | None]]:
    from .call import outputs_of

    torch.manual_seed(SEED)
    result: Any = call.forward()
    outputs = [t.detach().clone() for t in tensors_in(result)]
    return outputs, list(call.backward(outputs_of(result)))


def _gap(ours: list[Tensor] | list[Tensor | None], theirs: list[Tensor] | list[Tensor | None]) -> str:
    if len(ours) != len(theirs):
        return f"in number, {len(theirs)} and not {len(ours)}"
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None or not a.numel():
            continue
        if a.shape != b.shape:
            return f"in shape, {list(b.shape)} and not {list(a.shape)}"
        if not (a.is_floating_point() and b.is_floating_point()):
            continue
        wide = a.double(), b.double()
        finite = wide[0].isfinite() & wide[1].isfinite()
        gap = float((wide[0] - wide[1]).abs()[finite].max()) if bool(finite.any()) else 0.0
        scale = float(wide[0].abs()[finite].max()) if bool(finite.any()) else 0.0
        if gap > LOOSE * max(torch.finfo(a.dtype).eps, torch.finfo(b.dtype).eps) ** 0.5 * max(scale, 1e-30):
            return f"by {gap:.2g} where the largest is {scale:.2g}"
    return ""
