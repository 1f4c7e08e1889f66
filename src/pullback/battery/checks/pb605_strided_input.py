"""PB605."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..input_layouts import Trial, trials
from ..probe import Probe
from ..words import gradient_name


class StridedInput(Check):
    """The op is wrong, or its backward raises, when an input is not laid out in memory as in the samples.

    Why it matters:
        Inputs arrive transposed, sliced out of a larger tensor, expanded or in channels-last order. Where forward takes such an input, its result and
        gradient must be those of the packed one; code that reads memory in order gives other numbers, silently.

    How it is measured:
        One tensor argument at a time is handed over with the same values in another layout: packed, transposed, sliced, with an offset, expanded,
        channels-last. Outputs and gradients must stay the same for the same grad_output. Gaps between the elements hold NaN.

    Example:
        ``kernel(x.data_ptr(), x.numel())`` without ``x.contiguous()``; ``x.view(-1)`` in backward only.

    Instead:
        ``x = x.contiguous()`` at the top of forward, before it is saved; or refuse in forward (a note, PB624).

    Limits:
        Skipped for ops that draw random numbers: another layout may draw another mask. Where only backward draws, gradients are not compared.
    """

    code = "PB605"
    name = "strided-input"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.repeats.forward_draws:
            raise Skipped("forward draws random numbers, which may depend on the layout")
        if probe.explained("", "PB609"):
            raise Skipped("the op writes into its inputs")
        seen: set[str] = set()
        for trial in trials(probe):
            if trial.path in seen or trial.verdict not in ("raises", "wrong-output", "wrong-gradient"):
                continue
            if trial.verdict != "wrong-output" and probe.explained("", "PB604"):
                continue
            seen.add(trial.path)
            yield self._raises(probe, trial) if trial.verdict == "raises" else self._wrong(probe, trial)

    def _raises(self, probe: Probe, trial: Trial) -> Finding:
        assert trial.error is not None
        return self.finding(
            probe,
            f"{probe.backward_name} raises when {trial.path} is not laid out as in the sample, though forward takes it",
            evidence=[Evidence(f"{trial.path} {trial.shown}", trial.error.short, "the gradient, as with the layout of the sample")],
            cause=f"backward expects one memory layout of {trial.path} (the same values in the sample's layout are taken)",
            certain=True,
            fix=f"Save {trial.path}.contiguous() in forward, or use .reshape instead of .view in backward.",
        )

    def _wrong(self, probe: Probe, trial: Trial) -> Finding:
        gap = trial.gap
        assert gap is not None
        forward = trial.verdict == "wrong-output"
        what = gap.path if forward else gradient_name(gap.path)
        return self.finding(
            probe,
            f"{'forward of ' + probe.target.name if forward else probe.backward_name} is wrong when {trial.path} is not laid out as in the sample",
            location=probe.forward_location if forward else None,
            evidence=[
                gap.evidence(f"{trial.path} {trial.shown}: {what} differs from that for the same values in the sample's layout"),
            ],
            attachments=gap.picture(what),
            cause=f"the strides of {trial.path} are ignored (the same values in the sample's layout give another result)",
            certain=True,
            fix=f"{trial.path} = {trial.path}.contiguous() at the top of forward, before it is used and saved.",
        )
