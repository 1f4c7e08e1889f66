"""PB802."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..compare import largest_gap
from ..evaluate import Evaluator, UserCodeError
from ..gpu import both, mixes_devices, refusal, require_cuda
from ..keeping import owner
from ..probe import Probe
from ..session import user_line
from ..words import gradient_name


class WrongDevice(Check):
    """On a CUDA device the op mixes devices, or gives other results than on the CPU or than on another CUDA device.

    Why it matters:
        It raises on the first GPU, or in the first process whose GPU is not number 0; or, worse, a kernel launched on the current device reads
        memory of another and returns garbage.

    How it is measured:
        With ``--device cuda``: forward and backward on the device against the CPU, and where two GPUs are there, with all tensors on the one that is
        not current. Outputs and gradients must lie where their inputs lie.

    Example:
        ``torch.zeros(n, device="cuda")``; a kernel launched without ``torch.cuda.device(x.device)``.

    Instead:
        ``device=x.device`` where a tensor is made; ``with torch.cuda.device(x.device):`` around a launch.

    Limits:
        Ops that run on one kind of device only, or draw random numbers, are compared with nothing.
    """

    code = "PB802"
    name = "wrong-device"
    severity = "error"
    needs = ()
    tier = "gpu"

    def run(self, probe: Probe) -> Iterator[Finding]:
        first = require_cuda(probe)
        others = [torch.device("cuda", i) for i in range(torch.cuda.device_count()) if i != first.index]
        plain = probe.native.to("cpu")
        for place in (first, *others[:1]):
            found = self._on(probe, plain, probe.native.to(place), place)
            if found is not None:
                yield found
                return

    def _on(self, probe: Probe, plain: Evaluator, moved: Evaluator, place: torch.device) -> Finding | None:
        try:
            outcome = moved.forward()
            cotangents = probe.cotangents(outcome)
            gradients = moved.vjp(outcome, cotangents) if cotangents else []
        except UserCodeError as error:
            if not mixes_devices(error):
                raise refusal(error) from None
            where = user_line(error.error)
            return self._mixes(probe, place, error.stage, f"line {where[1]} mixes devices" if where else error.short)
        stray = next((y for y in outcome.live if y.device != place), None)
        if stray is not None:
            return self._mixes(probe, place, "forward", f"an output is on {stray.device}")
        try:
            outputs, expected = both(plain, [c.cpu() for c in cotangents])
        except UserCodeError as error:
            raise Skipped("does not run on the CPU, so that there is nothing to compare with") from error
        if probe.baseline.forward_error is None and (probe.repeats.forward_draws or not probe.repeats.forward):
            raise Skipped("draws random numbers, which differ between devices")
        got = [y.detach().cpu() for y in outcome.live]
        gap = largest_gap(outcome.paths, got, outputs)
        if gap is not None:
            return self._differs(probe, place, "forward", gap.path, gap)
        gap = largest_gap([leaf.path for leaf in moved.wanted], [None if g is None else g.cpu() for g in gradients], expected)
        return None if gap is None else self._differs(probe, place, "backward", gradient_name(gap.path), gap)

    def _mixes(self, probe: Probe, place: torch.device, stage: str, got: str) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)}.{stage} uses another device than that of its arguments",
            location=probe.forward_location if stage == "forward" else probe.backward_location,
            evidence=[Evidence(f"all tensor arguments on {place}, current device cuda:{torch.cuda.current_device()}", got=got, expected=f"{place}")],
            cause="a tensor is made on a fixed device, or on the current one",
            fix="device=x.device where the tensor is made",
        )

    def _differs(self, probe: Probe, place: torch.device, stage: str, what: str, gap) -> Finding:
        return self.finding(
            probe,
            f"{owner(probe)}.{stage} on {place} gives another {what} than on the CPU",
            location=probe.forward_location if stage == "forward" else probe.backward_location,
            evidence=[gap.evidence(f"{what} on {place}, current device cuda:{torch.cuda.current_device()}, against the CPU")],
            attachments=gap.picture(what.removeprefix("the ")),
            cause="the code for CUDA computes something else, or was launched on the current device instead of that of its arguments",
            fix="with torch.cuda.device(x.device): around the launch; compare the kernel with the CPU code",
            path=gap.path if stage == "backward" else None,
        )
