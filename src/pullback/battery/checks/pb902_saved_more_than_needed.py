"""PB902."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ...capture.calls import forward_names, positional_names
from ...report.finding import Evidence, Finding
from ..base import Check
from ..keeping import observe, owner, shown
from ..probe import Probe
from ..tensors import differentiable
from ..unneeded import size, unneeded
from ..words import listed


class SavedMoreThanNeeded(Check):
    """A whole tensor is kept for backward, which needs only its shape, dtype, device, or whether it is None.

    Why it matters:
        The tensor stays in memory from forward to backward; its shape would take a few bytes.

    How it is measured:
        backward is replayed with other values in that tensor (NaN, large, small, permuted), for every set of inputs that require grad and for second
        derivatives: no gradient changes by a bit; but without the tensor backward raises or returns something else.

    Example:
        ``torch.zeros_like(x)`` in backward with x saved for it alone.

    Instead:
        ``ctx.shape = x.shape`` and ``grad_output.new_zeros(ctx.shape)``.

    Limits:
        That a bit or a sign would do where values are kept is not claimed.
    """

    code = "PB902"
    name = "saved-more-than-needed"
    severity = "note"

    def run(self, probe: Probe) -> Iterator[Finding]:
        found = unneeded(probe)
        cause, here = "backward reads only its shape, dtype, device, or whether it is there", ""
        instead = ""
        if frozen := _frozen(probe):
            here = f" while {listed(frozen)} {'does' if len(frozen) == 1 else 'do'} not require grad"
            cause = f"no gradient depends on its values{here}; with other arguments one may"
            instead = f"; if the gradient of {listed(frozen)} needs the values, save them under its ctx.needs_input_grad[i] only"
        for kept in found.values_unread:
            shape = "its shape" if "[" in kept.name else f"ctx.shape = {kept.name}.shape"
            yield self.finding(
                probe,
                f"{owner(probe)} keeps {kept.name} for backward, which needs none of its values{here}",
                status="waste",
                location=probe.forward_location,
                evidence=[
                    Evidence(f"{kept.name}: {shown(kept.tensor)}, {size(kept)}; with NaN, large, small and permuted values no gradient changes")
                ],
                cause=cause,
                certain=True,
                fix=f"keep what is needed, such as {shape}, and take dtype and device from grad_output{instead}",
            )


def _frozen(probe: Probe) -> list[str]:
    """Return the floating tensor arguments of the Function that do not require grad where others do, also in a call that a module makes."""
    found: dict[str, None] = {}
    for call in observe(probe)[1]:
        names = positional_names(forward_names(call.function), len(call.arguments))
        named = zip(names, call.arguments, call.context.needs_input_grad, strict=False)
        tensors = [(name, needed) for name, t, needed in named if isinstance(t, Tensor) and differentiable(t)]
        if any(needed for _, needed in tensors):
            found |= dict.fromkeys(name for name, needed in tensors if not needed)
    return list(found)
