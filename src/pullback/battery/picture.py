"""Where two results differ, as the report page draws it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..report.finding import JSON

LISTED = 4096
GRID = (48, 64)


def differences(got: Tensor, expected: Tensor) -> Tensor:
    """Return how far two results of one shape are apart, entry by entry; infinite where either is NaN and the other is not."""
    wide = torch.complex128 if got.is_complex() or expected.is_complex() else torch.float64
    apart = (got.detach().to(wide) - expected.detach().to(wide)).abs().nan_to_num(nan=torch.inf)
    return torch.where(got.isnan() & expected.isnan(), 0.0, apart)


def picture(name: str, gap: Tensor, allowed: float) -> dict[str, JSON]:
    """Return the attachment that shows which entries of a result are farther off than allowed.

    Every such entry is listed with its error (None: not finite), or the share of them in each cell of a grid where there are too many to list.

    Args:
        name: What the result is called: ``"grad_x"``.
        gap: How far each entry is off.
        allowed: How far it may be.
    """
    gap = gap.detach().cpu()
    wrong = gap > allowed
    found: dict[str, JSON] = {"name": name, "shape": list(gap.shape), "wrong": int(wrong.sum()), "tolerance": allowed}
    if gap.numel() <= LISTED:
        where: list[JSON] = [int(i) for i in wrong.flatten().nonzero().flatten()]
        errors: list[JSON] = [float(f"{error:.2g}") if math.isfinite(error) else None for error in gap[wrong].tolist()]
        return {"gradient": {**found, "where": where, "error": errors}}
    rows = wrong.reshape(-1, gap.shape[-1])
    cells = min(GRID[0], rows.shape[0]), min(GRID[1], rows.shape[1])
    share = torch.nn.functional.adaptive_avg_pool2d(rows[None].to(torch.float64), cells).flatten().tolist()
    return {"gradient": {**found, "grid": {"rows": cells[0], "columns": cells[1], "share": [round(value, 3) for value in share]}}}
