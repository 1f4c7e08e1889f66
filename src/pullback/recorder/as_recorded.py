"""What the program did that a plain call does not do: autocast around forward, and grad_outputs in layouts of its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..battery import tolerance
from ..battery.compare import gradient_scales, largest_gap
from ..battery.evaluate import UserCodeError
from ..battery.probe import Probe
from ..battery.process_state import preserved_state
from ..battery.settings import Settings
from ..battery.tensors import copy_tensor
from ..battery.words import gradient_name
from ..capture.calls import Target
from ..capture.case import Case
from ..capture.recorded import Layout, Signature
from ..report import codes
from ..report.finding import Evidence, Finding


class AsRecorded:
    """A target that is called under the autocast under which the program called it; backward runs outside of it, as in the program.

    Args:
        target: What the program called.
        autocast: ``"cpu bfloat16"``; several devices are separated by commas.
    """

    def __init__(self, target: Target, autocast: str) -> None:
        self._target = target
        self._states = [tuple(state.split(" ")) for state in autocast.split(", ")]
        self.function = target.function
        self.__name__ = target.name
        self.__qualname__ = target.subject.rpartition(".")[2]
        self.__module__ = target.subject.rpartition(".")[0]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in target.names if name.isidentifier()]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        device, dtype = self._states[0]
        device = device if device == "cpu" or torch.cuda.is_available() else "cpu"
        with torch.autocast(device, dtype=getattr(torch, dtype)):
            return self._target.call(*args, **kwargs)


def recorded_layouts(case: Case, signature: Signature, settings: Settings) -> Iterator[Finding]:
    """Yield a finding where a grad_output laid out as in the program gives another gradient than the same values laid out like the output.

    Args:
        case: The recorded call.
        signature: Its layouts of grad_output, with counts.
        settings: The seed, and which codes run.
    """
    if not settings.runs("PB604"):
        return
    with preserved_state():
        probe = Probe(case, settings)
        if probe.baseline.backward_error is not None or probe.baseline.outcome is None or not probe.baseline.outcome.carrying:
            return
        for layouts, count in signature.gradients.items():
            found = _compare(probe, layouts, count)
            if found is not None:
                yield found
                return


def _compare(probe: Probe, layouts: tuple[Layout | None, ...], count: int) -> Finding | None:
    try:
        outcome = probe.exact.forward()
        chosen = _of_live(outcome.outputs, outcome.carrying, layouts)
        if chosen is None:
            return None
        laid_out = [_laid_out(c, layout) for c, layout in zip(probe.cotangents(outcome), chosen, strict=True)]
        packed = probe.exact.vjp(outcome, [copy_tensor(c, like=y) for c, y in zip(laid_out, outcome.live, strict=True)])
        got = probe.exact.vjp(probe.exact.forward(), laid_out)
    except UserCodeError:
        return None
    gap = largest_gap([leaf.path for leaf in probe.exact.wanted], got, packed, gradient_scales(probe))
    if gap is None:
        return None
    shown = ", ".join(str(layout) for layout in chosen)
    return Finding(
        "PB604",
        codes.name_of("PB604"),
        "error",
        "fail",
        probe.target.subject,
        f"{probe.backward_name} is wrong for grad_output as the program laid it out",
        probe.backward_location,
        (
            Evidence(
                f"grad_output {shown}, as in {count} calls of the program: {gradient_name(gap.path)} differs from that for the same values laid out "
                "like the output",
                gap.got,
                gap.expected,
                gap.error,
                gap.allowed,
                tolerance.WHY_ANALYTIC,
            ),
        ),
        "the backward ignores strides (the same values, laid out like the output, give another gradient)",
        True,
        "grad_output = grad_output.contiguous() at the top of backward",
    )


def _of_live(outputs: list[Tensor], carrying: list[int], layouts: tuple[Layout | None, ...]) -> list[Layout] | None:
    """Return the recorded layouts of the live outputs, or None where the program's do not fit or are no different."""
    if len(layouts) != len(outputs):
        return None
    chosen: list[Layout] = []
    for i in carrying:
        layout = layouts[i]
        if layout is None or layout.shape != tuple(outputs[i].shape) or len(layout.strides) != len(layout.shape):
            return None
        chosen.append(layout)
    return chosen if any(layout.strides != tuple(outputs[i].stride()) for i, layout in zip(carrying, chosen, strict=True)) else None


def _laid_out(values: Tensor, layout: Layout) -> Tensor:
    """Return a tensor with the recorded strides; expanded dimensions repeat their first entry."""
    extent = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if values.numel() else 1
    memory = torch.full((extent,), torch.nan, dtype=values.dtype, device=values.device)
    for dim, stride in enumerate(layout.strides):
        if stride == 0 and layout.shape[dim] > 1:
            values = values.narrow(dim, 0, 1)
    dense = tuple(1 if stride == 0 else size for size, stride in zip(layout.shape, layout.strides, strict=True))
    memory.as_strided(dense, layout.strides).copy_(values.reshape(dense))
    return memory.as_strided(layout.shape, layout.strides)
