"""PB604."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from .. import layouts, tolerance
from ..base import Check
from ..evaluate import Outcome, UserCodeError, copy_tensor
from ..probe import Probe, gradient_name


class StridedGradOutput(Check):
    """backward is wrong, or raises, when grad_output is not laid out in memory as the output is.

    Why it matters:
        The layout of grad_output is chosen by whatever follows the op: ``y.sum()`` gives an expanded one with strides 0, ``y.t()``, ``torch.cat`` and slices
        give transposed and offset ones. A kernel that reads the pointer as if rows were packed is silently wrong.

    How it is measured:
        The same cotangent values are handed over transposed, sliced from a larger block, with an offset, expanded and in channels-last order; the gradients
        must equal those for the packed one.

    Example:
        ``kernel(grad_output.data_ptr(), ...)`` without ``.contiguous()``; ``grad_output.view(-1)``.

    Instead:
        ``grad_output = grad_output.contiguous()`` at the top of backward, or pass the strides to the kernel.

    References:
        pytorch/pytorch#194719, Dao-AILab/flash-attention#355.
    """

    code = "PB604"
    name = "strided-grad-output"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        evaluator = probe.exact
        outcome = evaluator.forward()
        cotangents = probe.cotangents(outcome)
        writes = probe.explained("", "PB608")
        for layout in layouts.of_cotangents(outcome.live):
            if writes and "expanded" in layout.name:
                continue
            values = [layout.values(c) for c in cotangents]
            packed = self._gradients(probe, [copy_tensor(v, like=y) for v, y in zip(values, outcome.live, strict=True)])
            if isinstance(packed, UserCodeError):
                continue
            got = self._gradients(probe, [layout.apply(v) for v in values])
            shown = layout.describe([layout.apply(v) for v in values])
            if isinstance(got, UserCodeError):
                if not layouts.refuses_format(got):
                    yield self._raises(probe, shown, got)
                    return
                continue
            gap = _largest_gap(probe, got, packed)
            if gap is not None:
                yield self._wrong(probe, shown, *gap)
                return

    def _gradients(self, probe: Probe, cotangents: list[Tensor]) -> list[Tensor | None] | UserCodeError:
        try:
            outcome: Outcome = probe.exact.forward()
            return probe.exact.vjp(outcome, cotangents)
        except UserCodeError as error:
            return error

    def _raises(self, probe: Probe, shown: str, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} raises when grad_output is not laid out like the output",
            evidence=[Evidence(f"grad_output {shown}", got=error.short, expected="the gradient; laid out like the output it is given")],
            cause="backward expects one memory layout (the same values, laid out like the output, are taken)",
            certain=True,
            fix="grad_output = grad_output.contiguous() (or .reshape instead of .view) at the top of backward",
        )

    def _wrong(self, probe: Probe, shown: str, path: str, error: float, allowed: float) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} is wrong when grad_output is not contiguous",
            evidence=[
                Evidence(
                    f"grad_output {shown}: {gradient_name(path)} differs by {error:.1e} (tolerance {allowed:.1e}); laid out like the output: right",
                    error=error,
                    tolerance=allowed,
                    why_tolerance=tolerance.WHY_LINEAR,
                )
            ],
            cause="the backward ignores strides (the same values, laid out like the output, give another gradient)",
            certain=True,
            fix="grad_output = grad_output.contiguous() at the top of backward",
        )


def _largest_gap(probe: Probe, got: list[Tensor | None], expected: list[Tensor | None]) -> tuple[str, float, float] | None:
    for leaf, a, b in zip(probe.exact.wanted, got, expected, strict=True):
        if a is None or b is None:
            if a is not b:
                return leaf.path, float("inf"), 0.0
            continue
        if a.numel() == 0:
            continue
        allowed = tolerance.linear(a.dtype, float(b.detach().abs().max()), a.numel())
        error = float(torch.nan_to_num((a - b).detach().abs(), nan=torch.inf).max())
        if error > allowed and not torch.equal(torch.isnan(a), torch.isnan(b)):
            return leaf.path, error, allowed
        if error > allowed and bool(torch.isfinite(b).all()):
            return leaf.path, error, allowed
    return None
