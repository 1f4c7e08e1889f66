"""What each output contributes to a gradient, and with which coefficients the wrong gradient adds the contributions up."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..mismatch import Mismatch


def contribution(m: Mismatch, output: str) -> Tensor | None:
    """Return the part of the right gradient that comes from one output."""
    return m.vjp(m.path, cotangents={p: c if p == output else torch.zeros_like(c) for p, c in m.cotangents.items()})


def coefficients(m: Mismatch) -> dict[str, float]:
    """Return the factor of each output's contribution in what backward returned, as far as a sum of them can tell; empty for one output."""
    if len(m.cotangents) < 2 or m.got.is_complex():
        return {}
    parts = {path: contribution(m, path) for path in m.cotangents}
    columns = {path: part.flatten() for path, part in parts.items() if part is not None and bool(part.any())}
    if len(columns) < 2:
        return {}
    matrix = torch.stack(list(columns.values()), -1)
    if matrix.shape[0] < matrix.shape[1] or not bool(torch.isfinite(matrix).all()) or not bool(torch.isfinite(m.got).all()):
        return {}
    solved = torch.linalg.lstsq(matrix, m.got.flatten()[:, None]).solution.flatten()
    return dict(zip(columns, solved.tolist(), strict=True))


def combined(m: Mismatch, factors: Mapping[str, float]) -> Tensor | None:
    """Return the gradient with each output's contribution multiplied by its factor (1 where none is given)."""
    return m.vjp(m.path, cotangents={p: factors.get(p, 1.0) * c for p, c in m.cotangents.items()})
