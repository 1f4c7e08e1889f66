"""PB801."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ... import _compat, trees
from ...capture.calls import backward_of
from ...capture.library import op_behind, stand_in, without_metadata
from ...capture.observed_calls import ForwardCall
from ...capture.saved import reachable
from ...report.clean import clean
from ...report.finding import Evidence, Finding
from ..base import Check, Skipped, Unsupported
from ..keeping import observe, owner
from ..probe import Probe
from ..session import user_line
from ..tensors import differentiable
from ..truth import RecordingContext

DEVICE = "meta"
_MIXED = ("Expected all tensors to be on the same device", "at least two devices")


class WrongOnOtherDevice(Check):
    """On another device than the default the op mixes devices: something in it is made on the CPU.

    Why it matters:
        It works on the machine where it was written and raises, or returns CPU tensors, on the first GPU.

    How it is measured:
        Forward and backward run on tensors without memory that are on the meta device, as the one that is always there. A tensor that was made
        without ``device=`` then meets them, or is returned.

    Example:
        ``torch.arange(n)``, ``torch.zeros(shape)`` without ``device=x.device``.

    Instead:
        ``torch.arange(n, device=x.device)``, ``x.new_zeros(shape)``, ``torch.zeros_like(x)``.

    Limits:
        Ops that need values (``.item()``, numpy, pointers, masks as indices) or hold tensors in objects cannot run without memory: unsupported.
    """

    code = "PB801"
    name = "wrong-on-other-device"
    severity = "warning"
    compiler = True
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        if any(leaf.template.device.type != "cpu" for leaf in probe.native.leaves):
            raise Skipped("already runs on another device")
        _, calls = observe(probe)
        for call in map(_as_written, calls[:1]):
            if not _movable(call):
                raise Unsupported("the arguments hold tensors in objects or closures, which stay where they are")
            yield from self._run(probe, call)

    def _run(self, probe: Probe, call: ForwardCall) -> Iterator[Finding]:
        stage = "forward"
        try:
            with torch.no_grad(), _compat.fake_mode():
                context, result = _forward(call, tuple(_moved(a) for a in call.arguments))
                outputs = [t for _, t in trees.leaves(result) if isinstance(t, Tensor) and differentiable(t)]
                stray = next((t for t in outputs if t.device.type != DEVICE), None)
                if stray is None:
                    stage = "backward"
                    returned = backward_of(call.function)(context, *(_cotangent(r) for r in (result if isinstance(result, tuple) else (result,))))
                    gradients = [t for _, t in trees.leaves(returned) if isinstance(t, Tensor)]
                    stray = next((t for t in gradients if t.device.type != DEVICE), None)
        except Exception as error:
            if not any(mark in str(error) for mark in _MIXED):
                raise Unsupported(_why(stage, error)) from None
            where = user_line(error)
            yield self._mixes(probe, stage, f"line {where[1]} mixes {DEVICE} and cpu" if where else clean(error, limit=200))
            return
        if stray is not None:
            what = "an output" if stage == "forward" else "a gradient"
            yield self._mixes(probe, stage, f"{what} is on {stray.device}")

    def _mixes(self, probe: Probe, stage: str, got: str) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)}.{stage} makes a tensor on the CPU when its arguments are on another device",
            location=probe.forward_location if stage == "forward" else probe.backward_location,
            evidence=[Evidence(f"all tensor arguments on the {DEVICE} device (without memory)", got=got, expected=f"everything on {DEVICE}")],
            cause="a factory function without device=",
            fix="device=x.device where the tensor is made, or x.new_zeros, torch.zeros_like(x)",
        )


def _why(stage: str, error: Exception) -> str:
    """Return in the user's words why code cannot run without memory."""
    where = user_line(error)
    at = f"line {where[1]} of {stage}" if where else stage
    name, text = type(error).__name__, str(error)
    if name in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return f"{at} needs the values of tensors ({text})"
    if "convert all Tensors to FakeTensors" in text:
        return f"{at} reads a tensor that is no argument"
    return clean(f"{at} raises {name}: {text.partition(chr(10))[0]}", limit=200)


def _as_written(call: ForwardCall) -> ForwardCall:
    """Return a call of a torch.library op as one of the code that its author wrote, rather than of its dispatcher, which would ask register_fake."""
    op = op_behind(call.function)
    return call if op is None else replace(call, function=stand_in(op), arguments=without_metadata(call.arguments))


def _movable(call: ForwardCall) -> bool:
    plain = {id(t) for a in call.arguments for _, t in trees.leaves(a) if isinstance(t, Tensor)}
    return all(id(t) in plain for a in call.arguments for _, t in reachable(a)) and all(
        isinstance(leaf, (Tensor, int, float, bool, complex, str, type(None), torch.dtype, torch.Size))
        for a in call.arguments
        for _, leaf in trees.leaves(a)
    )


def _moved(value: Any) -> Any:
    def move(_: str, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=DEVICE)

    return trees.map_leaves(move, value)


def _forward(call: ForwardCall, arguments: tuple[Any, ...]) -> tuple[RecordingContext, Any]:
    function = call.function
    context = RecordingContext(tuple(isinstance(a, Tensor) and differentiable(a) for a in arguments))
    if function.setup_context is torch.autograd.Function.setup_context:
        return context, function.forward(context, *arguments)
    result = function.forward(*arguments)
    function.setup_context(context, arguments, result)
    return context, result


def _cotangent(output: Any) -> Any:
    return torch.empty_like(output) if isinstance(output, Tensor) and differentiable(output) else None
