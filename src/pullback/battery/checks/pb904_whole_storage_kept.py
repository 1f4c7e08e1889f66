"""PB904."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ... import _compat
from ...capture.saved import Kept, storage_bytes
from ...report.finding import Evidence, Finding
from ..base import Check
from ..keeping import Origin, origins, owner, shown
from ..probe import Probe
from ..words import listed

TIMES = 2


class WholeStorageKept(Check):
    """A small view is kept for backward, and with it the whole block of memory that it is a view of.

    Why it matters:
        A view holds its storage: keeping one column of a buffer of ten keeps all ten until backward.

    How it is measured:
        The bytes of the memory block behind each kept tensor, against the bytes of the kept tensors in it.

    Example:
        ``buffer = torch.empty(10, *x.shape)`` and ``ctx.save_for_backward(buffer[0])``.

    Instead:
        ``buffer[0].clone()``, where the rest of the block would be freed.

    Limits:
        Blocks that the caller keeps alive anyway, such as a parameter, are not told apart.
    """

    code = "PB904"
    name = "whole-storage-kept"
    severity = "note"
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        blocks: dict[int, list[Kept]] = {}
        for origin in (o for call in origins(probe) for o in call if _counts(o)):
            blocks.setdefault(_compat.storage_id(origin.kept.tensor), []).append(origin.kept)
        for kept in blocks.values():
            used = sum(_bytes(k) for k in kept)
            whole = storage_bytes(kept[0].tensor)
            if used and whole >= TIMES * used:
                yield self._whole(probe, kept, used, whole)

    def _whole(self, probe: Probe, kept: list[Kept], used: int, whole: int) -> Finding:
        names = listed(k.name for k in kept)
        return self.finding(
            probe,
            f"{owner(probe)} keeps {names} for backward, and with it a block {whole / used:.3g} times as large",
            status="waste",
            location=probe.forward_location,
            evidence=[Evidence(f"{names}: {shown(kept[0].tensor)}, {used} bytes in a block of {whole} bytes")],
            cause="a view keeps the whole memory that it is a view of",
            certain=True,
            fix=f"save {kept[0].name}.clone() if nothing else keeps the block",
        )


def _counts(origin: Origin) -> bool:
    """Whether the kept tensor is this call's own, or a part of an argument that is smaller than what the caller passed."""
    if origin.source in ("reachable", "persistent", "output") or origin.kept.tensor.layout is not torch.strided:
        return False
    return origin.source == "inside" or _compat.base_of(origin.kept.tensor) is not None


def _bytes(kept: Kept) -> int:
    return kept.tensor.numel() * kept.tensor.element_size()
