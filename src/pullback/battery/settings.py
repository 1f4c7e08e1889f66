"""`Settings`: how a case is checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Settings:
    """How a case is checked.

    Args:
        seed: Chooses every random direction, cotangent and sample.
        orders: 2 where second derivatives must be right; the declaration of a case may ask for it too.
        thorough: Whether the thorough tier runs.
        select: Codes that run; empty: all of the default tiers.
        ignore: Codes that do not run.
        dtype: Inputs are cast to this dtype first, or None.
        device: Inputs are moved to this device first, or None.
        leave: An absolute and a relative error of the Jacobian's entries that the caller lets pass.
        distributed: In how many processes the distributed tier runs; 0: not at all.
    """

    seed: int = 0
    orders: int = 1
    thorough: bool = False
    select: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    dtype: torch.dtype | None = None
    device: str | None = None
    leave: tuple[float, float] = (0.0, 0.0)
    distributed: int = 0

    @property
    def tiers(self) -> set[str]:
        """The tiers that run."""
        chosen = {"default"} | ({"thorough"} if self.thorough else set()) | ({"distributed"} if self.distributed > 1 else set())
        return chosen | ({"gpu"} if (self.device or "").startswith("cuda") else set())

    def runs(self, code: str) -> bool:
        """Return whether a check of the default tier is among the chosen ones."""
        return code not in self.ignore and (not self.select or code in self.select)
