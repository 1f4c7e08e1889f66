"""PB624."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import UserCodeError
from ..input_layouts import trials
from ..probe import Probe
from ..tensors import differentiable
from ..words import listed

_OVERLAPS = re.compile("more than one element of the written-to tensor")
"""What torch says where one element of memory stands for many and is written in place; no op takes that."""


class RefusesLayout(Check):
    """forward refuses an input because of its memory layout, or because it is float64.

    Why it matters:
        A clean refusal is right behaviour and no fault. It is told because callers have to know it, and because float64 inputs make every other
        check sharper.

    How it is measured:
        One tensor argument at a time is handed over in other layouts, then all floating ones as float64.

    Example:
        ``assert x.is_contiguous()`` in forward.

    Instead:
        ``x = x.contiguous()`` costs nothing where x is contiguous already.
    """

    code = "PB624"
    name = "refuses-layout"
    severity = "note"

    def run(self, probe: Probe) -> Iterator[Finding]:
        refused: dict[str, list[Evidence]] = {}
        for trial in trials(probe):
            if trial.verdict == "refused" and trial.error is not None and not _OVERLAPS.search(str(trial.error.error)):
                refused.setdefault(trial.path, []).append(Evidence(f"{trial.path} {trial.shown}", trial.error.short))
        for path, evidence in refused.items():
            yield self.finding(
                probe,
                f"forward of {probe.target.name} refuses layouts of {path}",
                status="unsupported",
                location=probe.forward_location,
                evidence=evidence[:3],
                fix=f"Nothing has to change; {path} = {path}.contiguous() at the top of forward would take every layout.",
            )
        error = self._refusal_of_float64(probe)
        if error is not None:
            yield self.finding(
                probe,
                f"forward of {probe.target.name} refuses float64: gradients are judged by the digits of {_dtypes(probe)}",
                status="unsupported",
                location=probe.forward_location,
                evidence=[Evidence("floating inputs cast to float64", error.short)],
                fix="Nothing has to change; a forward that takes float64 as well is judged to ten digits, and small faults show.",
            )

    def _refusal_of_float64(self, probe: Probe) -> UserCodeError | None:
        if all(t.template.dtype in (torch.float64, torch.complex128) for t in probe.native.leaves if differentiable(t.template)):
            return None
        try:
            probe.native.cast(torch.float64).forward()
        except UserCodeError as error:
            return error
        return None


def _dtypes(probe: Probe) -> str:
    found = dict.fromkeys(str(leaf.template.dtype).removeprefix("torch.") for leaf in probe.native.leaves if differentiable(leaf.template))
    return listed(found)
