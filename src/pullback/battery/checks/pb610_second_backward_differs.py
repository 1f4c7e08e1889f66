"""PB610."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from ..base import Check, Unsupported
from ..compare import Gap, gradient_scales, largest_gap
from ..evaluate import UserCodeError
from ..probe import Probe
from ..refusals import refuses
from ..words import gradient_name
from ..writes import writes


class SecondBackwardDiffers(Check):
    """A second backward through the same graph gives another gradient, or fails.

    Why it matters:
        ``retain_graph=True``, several losses on one output, and double use of a subgraph call backward more than once. A backward that scales
        what it saved, or frees a graph built in forward, is right the first time only.

    How it is measured:
        backward runs twice with the same grad_output on one retained graph; values must agree.

    Example:
        ``ctx.saved_tensors[0].mul_(grad_output)``; ``torch.autograd.grad(ctx.y, ctx.x, grad_output)`` on a graph that forward built.

    Instead:
        Treat saved tensors as constants; rebuild inner graphs inside backward.

    Limits:
        An error that backward raises on purpose at the second call is a refusal, not a finding.
    """

    code = "PB610"
    name = "second-backward-differs"
    severity = "error"
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.explained("", "PB609") and any(not write.cached for write in writes(probe).in_backward):
            return
        result = probe.second_backward
        if isinstance(result, UserCodeError):
            if refuses(result):
                raise Unsupported(f"backward refuses a second call: {result.short}")
            yield self._fails(probe, result)
            return
        gap = largest_gap([leaf.path for leaf in probe.native.wanted], result[1], result[0], gradient_scales(probe))
        if gap is not None:
            yield self._differs(probe, gap)

    def _fails(self, probe: Probe, error: UserCodeError) -> Finding:
        freed = "second time" in str(error.error)
        return self.finding(
            probe,
            f"{probe.backward_name} fails when it is called a second time on a retained graph",
            evidence=[Evidence("second backward, after retain_graph=True", error.short, "the same gradient again")],
            cause="the first backward frees a graph that forward built" if freed else "the first backward changes or frees what the second needs",
            fix="Build the inner graph inside backward from saved tensors." if freed else "Leave ctx and saved tensors as they are in backward.",
        )

    def _differs(self, probe: Probe, gap: Gap) -> Finding:
        name = gradient_name(gap.path)
        return self.finding(
            probe,
            f"{probe.backward_name} returns another {name} when it is called a second time on a retained graph",
            evidence=[gap.evidence(f"{name}, second backward against the first")],
            attachments=gap.picture(),
            cause="backward changes something that it reads: a saved tensor in place, an attribute of ctx or a global",
            fix="Leave saved tensors and ctx as they are in backward: out-of-place operations, or clone first.",
            path=gap.path,
        )
