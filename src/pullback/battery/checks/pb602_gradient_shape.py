"""PB602."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from ...capture.calls import name_of
from ...report.finding import Evidence, Finding
from ..base import Check
from ..probe import Probe
from ..slots import Slot, slots
from ..words import gradient_name


class GradientShape(Check):
    """A gradient that backward returns is not a tensor of its argument's shape.

    Why it matters:
        The engine stops with an error that counts arguments instead of naming them. Two gradients in the wrong order show here
        too, where shapes differ.

    How it is measured:
        What backward returns is looked at before the engine touches it: it must be a tensor (or None) whose shape is that of the argument. A
        shape that only broadcasting has enlarged is reduced by the engine: a note, since the sum costs no more inside backward and saves the copy.

    Example:
        ``return grad_x.sum(), grad_w`` where x is a matrix; ``return helper(grad_output), None`` where helper gives a pair.

    Instead:
        Return ``grad.sum(dims).reshape(x.shape)`` for each argument, unpack tuples of helpers, return None for what is not a tensor.
    """

    code = "PB602"
    name = "gradient-shape"
    severity = "error"
    needs = ()
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        for call in probe.baseline.calls:
            if call.error is not None or probe.explained("", "PB601"):
                continue
            if isinstance(call.returned, list):
                yield self._list(probe, name_of(call.function))
                return
            found = [f for f in (self._judge(probe, slot, name_of(call.function)) for slot in slots(probe, call)) if f is not None]
            yield from found
            if found:
                return
        refused = None if probe.target.direct else self._as_the_engine_says(probe)
        if refused is not None:
            yield refused

    def _judge(self, probe: Probe, slot: Slot, function: str) -> Finding | None:
        gradient = slot.gradient
        if gradient is None:
            return None
        if not isinstance(gradient, Tensor):
            return self._not_a_tensor(probe, slot, function)
        if not isinstance(slot.argument, Tensor):
            return self._not_wanted(probe, slot, function) if probe.target.direct else None
        shape, got = slot.argument.shape, gradient.shape
        if not slot.needed or shape == got:
            return None
        if _expands(shape, got):
            return self._expanded(probe, slot, function)
        return self.finding(
            probe,
            f"{function}.backward returns a gradient of the wrong shape for {slot.name}",
            evidence=[Evidence(f"shape of {gradient_name(slot.name)}", str(list(got)), f"{list(shape)}, as {slot.name}")],
            cause=self._swapped(probe, slot),
            fix=f"Return {gradient_name(slot.name)} with the shape of {slot.name}, in the order of forward's arguments; sum over what was broadcast.",
            path=slot.name,
        )

    def _swapped(self, probe: Probe, slot: Slot) -> str | None:
        others = [name for name, value in probe.native.named if isinstance(value, Tensor) and value.shape == slot.gradient.shape]
        return f"the shape is that of {others[0]}: the gradients may be in the wrong order" if len(others) == 1 else None

    def _list(self, probe: Probe, function: str) -> Finding:
        return self.finding(
            probe,
            f"{function}.backward returns a list; the engine takes one value or a tuple",
            evidence=[Evidence("type that backward returns", "list", "a tensor, None or a tuple of them")],
            cause="a list counts as one gradient, and is not a tensor",
            certain=True,
            fix="return tuple(grads)",
        )

    def _not_a_tensor(self, probe: Probe, slot: Slot, function: str) -> Finding:
        kind = type(slot.gradient).__name__
        inside = f" of {len(slot.gradient)}" if isinstance(slot.gradient, Sequence) and not isinstance(slot.gradient, str) else ""
        return self.finding(
            probe,
            f"{function}.backward returns a {kind} for {slot.name}, where a tensor or None belongs",
            evidence=[Evidence(f"type of {gradient_name(slot.name)}", f"{kind}{inside}", "a tensor or None")],
            cause="the result of a helper was not unpacked" if inside else None,
            fix="Unpack it: grad_a, grad_b = helper(...); return grad_a, grad_b" if inside else "Return a tensor, or None for no gradient.",
            path=slot.name,
        )

    def _not_wanted(self, probe: Probe, slot: Slot, function: str) -> Finding:
        kind = type(slot.argument).__name__
        return self.finding(
            probe,
            f"{function}.backward returns a gradient for {slot.name}, which is not a tensor",
            evidence=[Evidence(gradient_name(slot.name), f"a tensor of shape {list(slot.gradient.shape)}", f"None, {slot.name} is of type {kind}")],
            cause="the gradients are not in the order of forward's arguments",
            fix="Return gradients in the order of forward's arguments, None for each that is not a tensor.",
            path=slot.name,
        )

    def _as_the_engine_says(self, probe: Probe) -> Finding | None:
        error = probe.baseline.backward_error
        text = "" if error is None else str(error.error).splitlines()[0]
        function = next((f for f in probe.baseline.functions if text.startswith(f"Function {f.__name__}Backward returned")), None)
        if function is None or not ("expected shape compatible" in text or "was not a Variable" in text):
            return None
        return self.finding(
            probe,
            f"{name_of(function)}.backward returns a gradient that does not fit its argument",
            evidence=[Evidence("the engine says", text)],
            fix="Return gradients in the order of forward's arguments, each with its argument's shape, None for what is not a tensor.",
        )

    def _expanded(self, probe: Probe, slot: Slot, function: str) -> Finding:
        return self.finding(
            probe,
            f"{function}.backward returns the gradient of {slot.name} before it is summed over what was broadcast; the engine sums it",
            severity="note",
            status="waste",
            evidence=[
                Evidence(f"shape of {gradient_name(slot.name)}", str(list(slot.gradient.shape)), f"{list(slot.argument.shape)}, as {slot.name}")
            ],
            fix=f"{gradient_name(slot.name)}.sum(dims) inside backward, where it can be fused.",
            path=slot.name,
        )


def _expands(shape: Sequence[int], wider: Sequence[int]) -> bool:
    if len(wider) < len(shape):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(wider), strict=False))
