"""PB901."""

from __future__ import annotations

from collections.abc import Iterator

from ...capture.saved import Kept
from ...report.finding import Evidence, Finding
from ..base import Check
from ..keeping import owner, shown
from ..probe import Probe
from ..unneeded import size, unneeded


class SavedUnused(Check):
    """A tensor is kept for backward, which never reads it.

    Why it matters:
        It stays in memory from forward to backward for nothing; activations are most of what training needs.

    How it is measured:
        backward is replayed with that tensor missing, for every set of inputs that require grad, with flags flipped, and for second derivatives: no
        gradient changes by a bit and nothing raises.

    Example:
        ``ctx.save_for_backward(x, y)`` where backward uses only y.

    Instead:
        Leave it out of save_for_backward.

    Limits:
        It is a note for an output, which the next op often keeps as well, for what is saved wholesale (``save_for_backward(*inputs)``), and for
        what backward reads under a condition: other arguments may need it.
    """

    code = "PB901"
    name = "saved-unused"
    severity = "warning"

    def run(self, probe: Probe) -> Iterator[Finding]:
        found = unneeded(probe)
        for kept in found.unread:
            needs = "does not need it with these arguments" if kept.path in found.conditional else "never reads it"
            yield self.finding(
                probe,
                f"{owner(probe)} keeps {kept.name} for backward, which {needs}",
                severity="note" if found.quiet(kept) else "warning",
                status="waste",
                location=probe.forward_location,
                evidence=[
                    Evidence(
                        f"{kept.name}: {shown(kept.tensor)}, {size(kept)}; without it every gradient is the same"
                        + (f", in {found.settings} settings of what requires grad and of flags" if found.settings > 1 else "")
                    )
                ],
                cause=f"backward gives the same gradients when {_named(kept)} is missing",
                certain=True,
                fix=f"leave {kept.name} out of save_for_backward" if kept.saved else f"do not set {kept.path}",
            )


def _named(kept: Kept) -> str:
    return kept.name if kept.name == kept.path else f"{kept.name} ({kept.path})"
