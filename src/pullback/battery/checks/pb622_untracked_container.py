"""PB622."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import Leaf, UserCodeError
from ..probe import Probe
from ..words import gradient_name


class UntrackedContainer(Check):
    """A tensor inside a list, dict or dataclass argument gets no gradient, since torch does not look inside.

    Why it matters:
        ``autograd.Function`` tracks only tensors that are arguments themselves. What is packed into a container is constant for autograd, silently:
        the output does not even require grad if nothing else does.

    How it is measured:
        Every differentiated tensor that sits inside a container argument of the Function is moved; an output must not move if no gradient came.

    Example:
        ``Stack.apply([a, b])``, ``Layer.apply(x, {"weight": w})``.

    Instead:
        ``Stack.apply(*tensors)``: unpack the container before apply, and pack it again inside forward.

    Limits:
        Where the tensors were not given with requires_grad, a note: the container may hold constants.
    """

    code = "PB622"
    name = "untracked-container"
    severity = "warning"
    needs = ("direct",)
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        top = {name for name, _ in probe.native.named}
        nested = [(i, leaf) for i, leaf in enumerate(probe.native.wanted) if leaf.path not in top]
        gradients = probe.baseline.gradients
        lost = [leaf for i, leaf in nested if (i >= len(gradients) or gradients[i] is None) and self._matters(probe, leaf)]
        if lost:
            yield self._untracked(probe, lost)

    def _matters(self, probe: Probe, leaf: Leaf) -> bool:
        before = probe.baseline.outcome
        try:
            after = probe.native.forward(values={leaf.path: leaf.template + torch.ones_like(leaf.template) / 4})
        except UserCodeError:
            return False
        return before is not None and any(a.shape == b.shape and not torch.equal(a, b) for a, b in zip(before.outputs, after.outputs, strict=False))

    def _untracked(self, probe: Probe, lost: list[Leaf]) -> Finding:
        names = ", ".join(leaf.path for leaf in lost[:4]) + (", …" if len(lost) > 4 else "")
        return self.finding(
            probe,
            f"{probe.target.name} gets no gradient to {names}: torch does not look inside containers",
            severity="warning" if probe.asked else "note",
            location=probe.forward_location,
            evidence=[Evidence(f"{leaf.path} moves the output; {gradient_name(leaf.path)}", "None", "a gradient") for leaf in lost[:4]],
            cause="autograd.Function tracks tensors that are arguments themselves, not those in a list, tuple, dict or dataclass",
            certain=True,
            fix="Unpack before apply (F.apply(*tensors)) and pack again inside forward; backward then returns one gradient for each.",
            path=lost[0].path if len(lost) == 1 else None,
        )
