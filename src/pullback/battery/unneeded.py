"""Which kept tensors backward does not need, settled by experiment."""

from __future__ import annotations

from dataclasses import dataclass

from ..capture.saved import Kept, read_in_branches, saves_wholesale, storage_bytes
from .base import Skipped
from .keeping import Origin, origins
from .probe import Probe
from .replay import Replay

LIMIT = 24


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Kept tensors by what backward needs of them: nothing, or not their values."""

    unread: tuple[Kept, ...]
    values_unread: tuple[Kept, ...]
    settings: int
    outputs: frozenset[str] = frozenset()
    wholesale: bool = False

    conditional: frozenset[str] = frozenset()

    def quiet(self, kept: Kept) -> bool:
        """Whether keeping it costs little or was not a choice of its own: an output, one of ``*inputs``, or what other arguments need."""
        return kept.path in self.outputs or kept.path in self.conditional or (kept.saved and self.wholesale)


def unneeded(probe: Probe) -> Unneeded:
    """Return the kept tensors that no gradient depends on; computed once.

    Raises:
        Skipped: where backward cannot be replayed.
    """
    found = probe.once("unneeded", lambda: _measured(probe))
    if found is None:
        raise Skipped("backward does not give the same gradients when it is replayed")
    return found


def _measured(probe: Probe) -> Unneeded | None:
    candidates = _candidates(probe)
    if not candidates:
        return Unneeded((), (), 0)
    replay = Replay(probe)
    if not replay.faithful:
        return None
    unread, values = [], []
    for kept in candidates:
        if replay.unread(kept.path):
            unread.append(kept)
        elif replay.values_unread(kept.path):
            values.append(kept)
    outputs = frozenset(o.kept.path for call in origins(probe) for o in call if o.source == "output")
    wholesale = any(saves_wholesale(function) for function in probe.baseline.functions)
    branches = frozenset(path for function in probe.baseline.functions for path in read_in_branches(function))
    return Unneeded(tuple(unread), tuple(values), len(replay.settings), outputs, wholesale, branches)


def _candidates(probe: Probe) -> list[Kept]:
    found: dict[str, Origin] = {}
    for call in origins(probe):
        for origin in call:
            found.setdefault(origin.kept.path, origin)
    jvp = probe.function is not None and "jvp" in vars(probe.function)
    return [o.kept for o in found.values() if o.kept.tensor.numel() and (o.kept.saved or (_plain(o) and not jvp))][:LIMIT]


def _plain(origin: Origin) -> bool:
    """Whether a tensor on ctx is this call's own, and hangs there directly or in a list, tuple or dict, where a replay can alter it."""
    hidden = any(mark in origin.kept.path.removeprefix("ctx.") for mark in (".", "("))
    own = origin.source in ("inside", "output") or (origin.source == "argument" and origin.kept.tensor.requires_grad)
    return own and not hidden


def size(kept: Kept) -> str:
    """Return how much a kept tensor holds, in words."""
    count = storage_bytes(kept.tensor)
    per = count / max(1, kept.tensor.numel())
    return f"{count} bytes, {per:g} an element"
