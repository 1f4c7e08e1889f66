"""PB612."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..keeping import Origin, origins, owner, shown
from ..probe import Probe
from ..tensors import differentiable
from ..unneeded import unneeded
from ..words import listed


class HiddenResidual(Check):
    """A tensor is kept for backward as an attribute of ctx, or hidden in something that hangs on ctx, instead of by save_for_backward.

    Why it matters:
        Checkpointing and offloading do not see it, so it stays in memory; nothing notices when it is changed in place before backward; it is not
        freed when backward has run; and a gradient of second order takes it for a constant.

    How it is measured:
        After one forward every tensor that can be reached from ctx is found, through lists, dicts, attributes of objects, closures and partials. A
        floating tensor that requires grad (or shares memory with an argument that does: ``x.detach()``), or that forward computed, is a warning.
        Random states, index tensors, quantised weights, running statistics, single numbers, constant tables and graphs that forward built on purpose
        are notes. What hangs on an argument (a cache that was passed in, a ``main_grad``) is the caller's.

    Example:
        ``ctx.x = x``, ``ctx.residuals = {"mask": mask}``, ``ctx.recompute = lambda: run(x)``.

    Instead:
        ``ctx.save_for_backward(x, mask)`` and ``x, mask = ctx.saved_tensors``; numbers, shapes and flags stay attributes.

    Limits:
        Tensors inside other libraries' objects (numpy arrays, pointers) are not seen.

    References:
        PyTorch notes, "Extending PyTorch": save_for_backward.
    """

    code = "PB612"
    name = "hidden-residual"
    severity = "warning"
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        found = {o.kept.path: o for call in origins(probe) for o in call if not o.kept.saved}
        hidden = [o for o in found.values() if o.source in ("argument", "inside", "persistent")]
        wanted = {leaf.path for leaf in probe.native.wanted} if probe.target.direct else set()
        loud = [o for o in hidden if _matters(o, wanted)]
        dropped = _unread(probe)
        quiet = [o for o in hidden if not _matters(o, wanted) and o.kept.path not in dropped]
        if loud:
            yield self._hidden(probe, loud, "warning")
        if quiet:
            yield self._hidden(probe, quiet, "note")

    def _hidden(self, probe: Probe, hidden: list[Origin], severity: str) -> Finding:
        names = listed(o.kept.path for o in hidden)
        return self.finding(
            probe,
            f"{owner(probe)} keeps {names} on ctx, where save_for_backward does not see {'it' if len(hidden) == 1 else 'them'}",
            severity="warning" if severity == "warning" else "note",
            location=probe.forward_location,
            evidence=[Evidence(f"{o.kept.path}: {shown(o.kept.tensor)}, {_origin(o)}") for o in hidden],
            cause=f"{'it hangs' if len(hidden) == 1 else 'they hang'} on ctx after forward",
            certain=True,
            attachments={"about": [o.kept.path for o in hidden]},
            fix=f"ctx.save_for_backward({', '.join(dict.fromkeys(map(_written, hidden)))}) in forward, ctx.saved_tensors in backward",
        )


def _unread(probe: Probe) -> set[str]:
    """What PB901 says to leave out: it need not be saved in another way."""
    try:
        return {kept.path for kept in unneeded(probe).unread} if probe.settings.runs("PB901") else set()
    except Skipped:
        return set()


def _written(origin: Origin) -> str:
    """Return how forward may name the tensor: the argument, what a closure closes over, or what hangs on ctx."""
    closed = re.search(r"\(its closure's (\w+)\)$", origin.kept.path)
    return origin.argument or (closed[1] if closed else origin.kept.path.removeprefix("ctx.").partition(" ")[0])


def _matters(origin: Origin, wanted: set[str]) -> bool:
    tensor = origin.kept.tensor
    if not differentiable(tensor):
        return False
    if origin.source == "argument":
        return tensor.requires_grad or origin.argument in wanted
    return origin.source == "inside" and tensor.numel() > 1 and not origin.has_graph


def _origin(origin: Origin) -> str:
    tensor = origin.kept.tensor
    if origin.source == "argument":
        return f"the argument {origin.argument}" + (", which requires grad" if tensor.requires_grad else "")
    if origin.has_graph:
        return "with a graph of its own that forward built"
    return "computed in forward" if origin.source == "inside" else "the same memory at every call"
