"""PB609."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import Leaf
from ..probe import Probe
from ..writes import Write, writes


class MutatesInput(Check):
    """The op writes into one of its inputs without saying so.

    Why it matters:
        Whoever holds the tensor reads other values afterwards. Autograd does not know of the write: operations that saved the tensor before compute
        wrong gradients, and a write in backward reaches tensors that other operations still need.

    How it is measured:
        Every tensor argument is compared with a copy after forward and again after backward, by value, so that writes through numpy or raw pointers
        show. So does another shape: ``unsqueeze_`` on an argument changes the caller's tensor.

    Example:
        ``x += b`` in forward without ``ctx.mark_dirty(x)``; a kernel that stores gradients in the memory of a saved input.

    Instead:
        ``ctx.mark_dirty(x)`` and return x, or work on ``x.clone()``. In backward, write into new tensors.

    Limits:
        Buffers that need no gradient and that forward updates (running statistics) are a note. A buffer that backward moves again as forward did is
        PB610, and so is a cache inside a container argument: accumulating into one is legitimate as long as gradients repeat.
    """

    code = "PB609"
    name = "mutates-input"
    severity = "error"
    needs = ()
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        found = writes(probe)
        for path in found.freed:
            yield self.finding(
                probe,
                f"forward of {probe.target.name} gives back the memory of {path}",
                severity="note",
                location=probe.forward_location,
                evidence=[Evidence(f"the memory of {path} is gone after forward")],
                fix=f"Nothing, if no caller reads {path} before backward has rebuilt it; reading it earlier ends the process.",
            )
        for write in found.in_forward:
            if write.path not in found.dirty:
                yield self._reshapes(probe, write) if write.reshaped else self._forward(probe, write)
        repeated = {w.path for w in found.in_forward if not w.wanted}
        for write in found.in_backward:
            if write.path not in repeated and not write.cached:
                yield self._backward(probe, write)

    def _reshapes(self, probe: Probe, write: Write) -> Finding:
        assert write.reshaped is not None
        before, after = (list(shape) for shape in write.reshaped)
        return self.finding(
            probe,
            f"forward of {probe.target.name} changes the shape of {write.path}, the caller's own tensor",
            location=probe.forward_location,
            evidence=[Evidence(f"the shape of {write.path} after forward", str(after), str(before))],
            cause="unsqueeze_, squeeze_ or t_ works on the argument itself; the next call gets it as it was left",
            certain=True,
            fix=f"{write.path} = {write.path}.unsqueeze(...): the same operation without the underscore.",
        )

    def _forward(self, probe: Probe, write: Write) -> Finding:
        evidence = [Evidence(f"{write.changed} of {write.count} elements of {write.path} changed during forward")]
        if not write.wanted or self._gets_none(probe, write.path):
            return self.finding(
                probe,
                f"forward of {probe.target.name} writes into {write.path}, which needs no gradient",
                severity="note",
                location=probe.forward_location,
                evidence=evidence,
                fix="Nothing, if callers expect the update.",
            )
        return self.finding(
            probe,
            f"forward of {probe.target.name} writes into {write.path} without mark_dirty",
            location=probe.forward_location,
            evidence=evidence,
            cause=f"an in-place operation or a kernel writes to the memory of {write.path}, and autograd is not told",
            certain=True,
            fix=f"ctx.mark_dirty({write.path}) and return it, or work on {write.path}.clone().",
        )

    def _gets_none(self, probe: Probe, path: str) -> bool:
        base = probe.baseline
        leaves: list[Leaf] = probe.native.wanted
        gradients: list[Tensor | None] = base.gradients
        return not probe.asked and any(leaf.path == path and g is None for leaf, g in zip(leaves, gradients, strict=False))

    def _backward(self, probe: Probe, write: Write) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} writes into {write.path}",
            evidence=[Evidence(f"{write.changed} of {write.count} elements of {write.path} changed during backward")],
            cause=f"the memory of {write.path}, which forward saved, is used for results or scratch",
            certain=True,
            fix=f"Write into a new tensor (torch.empty_like({write.path})), or clone {write.path} in forward before saving it.",
        )
