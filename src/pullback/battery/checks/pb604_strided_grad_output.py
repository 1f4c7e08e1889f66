"""PB604."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from .. import layouts
from ..base import Check
from ..compare import Gap, by_rounding, gradient_scales, largest_gap
from ..evaluate import Outcome, UserCodeError
from ..probe import Probe
from ..tensors import copy_tensor, same
from ..words import gradient_name


class StridedGradOutput(Check):
    """backward is wrong, or raises, when grad_output is not laid out in memory as the output is.

    Why it matters:
        The layout of grad_output is chosen by whatever follows the op: ``y.sum()`` gives an expanded one with strides 0, ``y.t()``, ``torch.cat``
        and slices give transposed and offset ones. A kernel that reads the pointer as if rows were packed is silently wrong.

    How it is measured:
        The same cotangent values are handed over packed, transposed, sliced from a larger block, with an offset (packed or not), expanded, in
        channels-last order and with pending conjugation or negation; the gradients must equal those for a grad_output that is laid out like the
        output.

    Example:
        ``kernel(grad_output.data_ptr(), ...)`` without ``.contiguous()``; ``grad_output.view(-1)``.

    Instead:
        ``grad_output = grad_output.contiguous()`` at the top of backward, or pass the strides to the kernel.

    Limits:
        All grad_outputs get the layout at once. A kernel that ignores a pending negation (rare) is a note, and one that refuses it is none. Of a
        backward that draws random numbers only errors are reported: in another layout it draws others.

    References:
        pytorch/pytorch#194719, Dao-AILab/flash-attention#355.
    """

    code = "PB604"
    name = "strided-grad-output"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        outcome = probe.exact.forward()
        cotangents = probe.cotangents(outcome)
        for layout in layouts.of_cotangents(outcome.live):
            values = [layout.values(c) for c in cotangents]
            given = [copy_tensor(v, like=y) for v, y in zip(values, outcome.live, strict=True)]
            packed = self._gradients(probe, given)
            written = not all(map(same, given, values))
            if isinstance(packed, UserCodeError) or (written and "expanded" in layout.name):
                continue
            laid_out = [layout.apply(v) for v in values]
            got = self._gradients(probe, [layout.apply(v) for v in values])
            found = self._judge(probe, layout, layout.describe(laid_out), got, packed, values)
            if found is not None:
                yield found
                if found.severity != "note":
                    return

    def _gradients(self, probe: Probe, cotangents: list[Tensor]) -> list[Tensor | None] | UserCodeError:
        try:
            outcome: Outcome = probe.exact.forward()
            return probe.exact.vjp(outcome, cotangents)
        except UserCodeError as error:
            return error

    def _judge(self, probe: Probe, layout: layouts.Layout, shown: str, got: Any, packed: list[Tensor | None], values: list[Tensor]) -> Finding | None:
        if isinstance(got, UserCodeError):
            if layouts.refuses_format(got) or layout.apply is layouts.lazily_negative:
                return None
            return self._refuses_conjugation(probe, got) if layout.lazy else self._raises(probe, shown, got)
        gap = largest_gap([leaf.path for leaf in probe.exact.wanted], got, packed, gradient_scales(probe))
        if gap is None or probe.repeats.backward_draws or by_rounding(probe, gap, values):
            return None
        if layout.apply is layouts.behind and _packed(probe):
            return self._ignores_offset(probe, shown, gap)
        return self._ignores_lazy_bit(probe, layout, gap) if layout.lazy else self._wrong(probe, shown, gap)

    def _raises(self, probe: Probe, shown: str, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises when grad_output is not laid out like the output",
            evidence=[Evidence(f"grad_output {shown}", got=error.short, expected="the gradient; laid out like the output it is given")],
            cause="backward expects one memory layout (the same values, laid out like the output, are taken)",
            certain=True,
            fix=f"grad_output = grad_output.{_like_output(probe)} (or .reshape instead of .view) at the top of backward",
        )

    def _refuses_conjugation(self, probe: Probe, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises when grad_output is a pending conjugate",
            evidence=[
                Evidence("grad_output with a pending conjugation, as the gradient of y.conj() is", error.short, "the gradient, as once resolved")
            ],
            cause="an operator of backward needs the memory itself: view_as_real, numpy(), data_ptr() (the same values, resolved, are taken)",
            certain=True,
            fix="grad_output = grad_output.resolve_conj() at the top of backward",
        )

    def _wrong(self, probe: Probe, shown: str, gap: Gap) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} is wrong when grad_output is not {'contiguous' if _packed(probe) else 'laid out like the output'}",
            evidence=[gap.evidence(f"grad_output {shown}: {gradient_name(gap.path)} is wrong; laid out like the output it is right")],
            cause="the backward ignores strides (the same values, laid out like the output, give another gradient)",
            certain=True,
            fix=f"grad_output = grad_output.{_like_output(probe)} at the top of backward",
            attachments=gap.picture(),
        )

    def _ignores_offset(self, probe: Probe, shown: str, gap: Gap) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} is wrong when grad_output does not start where its memory starts",
            evidence=[gap.evidence(f"grad_output {shown}: {gradient_name(gap.path)} is another one; at the start of its memory: right")],
            cause="the memory is read from its start, without storage_offset() (the same values at the start of their memory are right)",
            certain=True,
            fix="Read from grad_output.data_ptr(), which counts the offset, or work on grad_output.clone(); .contiguous() keeps the offset.",
            attachments=gap.picture(),
        )

    def _ignores_lazy_bit(self, probe: Probe, layout: layouts.Layout, gap: Gap) -> Finding:
        conj = layout.apply is layouts.lazily_conjugate
        bit, pending = ("conj", "conjugation") if conj else ("neg", "negation")
        return self.finding(
            probe,
            f"{probe.backward_name} ignores the {bit} bit of grad_output",
            severity="error" if conj else "note",
            evidence=[gap.evidence(f"grad_output {layout.name.rstrip(',')}: {gradient_name(gap.path)}")],
            cause=f"memory is read without the pending {pending} (resolved, the same values are right)",
            certain=True,
            fix=f"grad_output = grad_output.resolve_{bit}().contiguous() before its pointer is taken",
            attachments=gap.picture(),
        )


def _packed(probe: Probe) -> bool:
    outcome = probe.baseline.outcome
    return outcome is None or all(y.is_contiguous() for y in outcome.live if y.layout is torch.strided)


def _like_output(probe: Probe) -> str:
    """Return the call that lays grad_output out as backward expects it: like the output."""
    if _packed(probe):
        return "contiguous()"
    assert probe.baseline.outcome is not None
    last = all(y.dim() == 4 and y.is_contiguous(memory_format=torch.channels_last) for y in probe.baseline.outcome.live)
    return "contiguous(memory_format=torch.channels_last)" if last else "new_empty_strided(output.shape, output.stride()).copy_(grad_output)"
