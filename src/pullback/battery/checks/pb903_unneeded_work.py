"""PB903."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ... import _compat
from ...capture.calls import forward_names, positional_names
from ...capture.observed_calls import BackwardCall, observed_backward
from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import UserCodeError
from ..keeping import shown
from ..probe import Probe
from ..tensors import copy_tensor
from ..words import gradient_name, listed


class UnneededWork(Check):
    """backward computes a gradient that nobody asked for.

    Why it matters:
        The gradient of a weight costs a matrix product; with the weight frozen, as in fine-tuning, its result is thrown away.

    How it is measured:
        Each input in turn does not require grad; a tensor that backward returns for it, and that is neither grad_output itself nor another gradient,
        was computed for nothing.

    Example:
        ``return grad_output @ w.t(), x.t() @ grad_output`` whatever ``ctx.needs_input_grad`` says.

    Instead:
        ``if ctx.needs_input_grad[1]: grad_w = x.t() @ grad_output``.

    Limits:
        Work inside one fused kernel that gives all gradients at once is reported too.
    """

    code = "PB903"
    name = "unneeded-work"
    severity = "note"
    needs = ("backward", "function")

    def run(self, probe: Probe) -> Iterator[Finding]:
        paths = [leaf.path for leaf in probe.native.wanted]
        if probe.function is None or len(paths) < 2:
            return
        found: dict[str, Tensor] = {}
        for frozen in paths:
            try:
                outcome = probe.native.forward(requires_grad=[p for p in paths if p != frozen])
                if not outcome.carrying:
                    continue
                with observed_backward(probe.function) as calls:
                    probe.native.vjp(outcome, [copy_tensor(c) for c in probe.cotangents(outcome)])
            except UserCodeError:
                continue
            for call in calls:
                found |= _unasked(call)
        if found:
            yield self._unneeded(probe, found)

    def _unneeded(self, probe: Probe, found: dict[str, Tensor]) -> Finding:
        names = listed(gradient_name(name) for name in found)
        return self.finding(
            probe,
            f"{probe.backward_name} computes {names} when {'it is' if len(found) == 1 else 'they are'} not needed",
            status="waste",
            evidence=[
                Evidence(f"{name} does not require grad", got=f"{gradient_name(name)} {shown(gradient)}", expected="None")
                for name, gradient in found.items()
            ],
            cause="the gradient is computed without asking ctx.needs_input_grad",
            certain=True,
            fix="compute each gradient under its own ctx.needs_input_grad[i], and return None otherwise",
        )


def _unasked(call: BackwardCall) -> dict[str, Tensor]:
    """Return the tensors that backward returned for arguments that need none, by the argument's name."""
    needed = call.context.needs_input_grad
    names = positional_names(forward_names(call.function), len(needed))
    free = {_compat.storage_id(g) for g in call.grad_outputs if isinstance(g, Tensor)}
    free |= {_compat.storage_id(g) for g, need in zip(call.gradients, needed, strict=False) if need and isinstance(g, Tensor)}
    pairs = zip(names, call.gradients, needed, strict=False)
    return {name: g for name, g, need in pairs if not need and isinstance(g, Tensor) and _compat.storage_id(g) not in free}
