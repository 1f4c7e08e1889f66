"""PB603."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...capture.calls import name_of
from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check
from ..evaluate import UserCodeError
from ..probe import Probe
from ..slots import Slot, slots
from ..tensors import differentiable
from ..words import gradient_name


class GradientDtypeOrDevice(Check):
    """A gradient that backward returns has another dtype or device than its argument.

    Why it matters:
        The engine casts a wrong dtype without a word, after the digits are lost, and refuses a wrong device. gradcheck sees the cast result only.

    How it is measured:
        What backward returns is looked at before the engine touches it. A dtype of fewer digits than the argument's counts, unless a
        grad_output came in that dtype (mixed precision) or forward itself works at that precision. More digits lose nothing: a note.

    Example:
        ``grad = torch.zeros(n)`` (float32) for a float64 x, ``torch.zeros(x.shape)`` (on the CPU) for a cuda tensor.

    Instead:
        ``torch.zeros_like(x)``, ``grad_output.new_zeros(n)``, or ``.to(x.dtype)`` once at the end.
    """

    code = "PB603"
    name = "gradient-dtype-or-device"
    severity = "warning"
    needs = ()
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        for call in probe.baseline.calls:
            if call.error is not None:
                continue
            arriving = {g.dtype for g in call.grad_outputs if isinstance(g, Tensor)}
            found = [f for f in (self._judge(probe, slot, name_of(call.function), arriving) for slot in slots(probe, call)) if f is not None]
            yield from found
            if found:
                return

    def _judge(self, probe: Probe, slot: Slot, function: str, arriving: set[torch.dtype]) -> Finding | None:
        argument, gradient = slot.argument, slot.gradient
        if not slot.needed or not isinstance(gradient, Tensor) or not isinstance(argument, Tensor):
            return None
        if gradient.device != argument.device and gradient.dim() > 0:
            return self._device(probe, slot, function)
        if gradient.dtype == argument.dtype:
            return None
        loses = _loses(argument.dtype, gradient.dtype) and not (differentiable(gradient) and gradient.dtype in arriving)
        if loses and _works_at(probe, slot.name, gradient.dtype):
            loses = False
        got, expected = (str(d).removeprefix("torch.") for d in (gradient.dtype, argument.dtype))
        return self.finding(
            probe,
            f"{function}.backward returns a {got} gradient for {slot.name}, which is {expected}; the engine casts it",
            severity="warning" if loses else "note",
            status="fail" if loses else "waste",
            evidence=[Evidence(f"dtype of {gradient_name(slot.name)}", got, expected)],
            cause="a tensor was made with the default dtype, or a cast was forgotten" if loses else None,
            fix=f"Make the buffer with zeros_like({slot.name}) or grad_output.new_zeros(...), or cast with .to({slot.name}.dtype) at the end.",
            path=slot.name,
        )

    def _device(self, probe: Probe, slot: Slot, function: str) -> Finding:
        return self.finding(
            probe,
            f"{function}.backward returns a gradient on {slot.gradient.device} for {slot.name}, which is on {slot.argument.device}",
            severity="error",
            evidence=[Evidence(f"device of {gradient_name(slot.name)}", str(slot.gradient.device), str(slot.argument.device))],
            cause="a tensor was made without device=",
            fix=f"Make it with zeros_like({slot.name}), grad_output.new_zeros(...) or device={slot.name}.device.",
            path=slot.name,
        )


def _loses(argument: torch.dtype, gradient: torch.dtype) -> bool:
    if not (gradient.is_floating_point or gradient.is_complex):
        return True
    if gradient.is_complex and not argument.is_complex:
        return True
    return tolerance.eps(gradient) > tolerance.eps(argument)


def _works_at(probe: Probe, path: str, dtype: torch.dtype) -> bool:
    """Whether forward itself carries no more digits than `dtype`."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    outcome = probe.baseline.outcome
    if outcome is not None and all(y.dtype == dtype for y in outcome.live):
        return True
    try:
        verdict = probe.value.inputs.get(path)
    except UserCodeError:
        return False
    return verdict is not None and verdict.noise > tolerance.eps(dtype) / 64
