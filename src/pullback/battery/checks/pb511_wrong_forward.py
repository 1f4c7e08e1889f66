"""PB511."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...report.finding import JSON, Evidence, Finding
from .. import honesty, tolerance
from ..against import Against, in_double
from ..base import Check, Skipped
from ..branches import other_cuts
from ..evaluate import UserCodeError
from ..honesty import Trick
from ..locate import compare
from ..probe import Probe
from ..single import digits
from ..special import special_points
from ..tensors import copy_tensor

SIZE_SECONDS = 0.15


class WrongForward(Check):
    """The forward, or a gradient, differs from the reference that was given for it, or agrees with it only while it is being checked.

    Why it matters:
        A gradient that belongs to a wrong forward passes every test of gradients: only another way of computing the same shows the fault. And whoever
        is judged by a reference alone, as generated kernels are, is tempted to satisfy the judge instead.

    How it is measured:
        The reference is evaluated in float64 on the same values, always after the op. Outputs, and gradients for signed grad_outputs, must agree
        to half the digits of the dtype in which the op works (or to 8 times the error of the reference in that dtype): in float64 and in the dtype
        that was given, at special values (zeros, ties, the numbers among the arguments as input values), cut in other chunks or blocks where an
        argument says how many, and at other sizes. Then the op is called
        with fresh memory filled with NaN; with inputs that were changed in place since the last call; with other values, where nothing may stay
        the same bit for bit; with the same values in other tensors, where the same lines must run; in a thread from which no checker can be seen.
        And its output must not be what the reference, called by the op itself, returned to it.

    Example:
        A chunked loss that gives every chunk the labels of the first one; its gradient is the derivative of that wrong loss. A kernel that returns
        ``torch.empty_like(x)`` and finds there what the reference has just freed.

    Instead:
        Compare intermediate results with the reference's, beginning at the output that the evidence names. Caches are welcome where their key
        holds all that the result depends on: ``x._version`` besides ``x.data_ptr()``.

    Limits:
        A random op is compared only if it repeats the reference's draws. A reference that is wrong itself is believed. An op that calls its
        reference, or skips work for repeated values, is right: a warning.
    """

    code = "PB511"
    name = "wrong-forward"
    severity = "error"
    needs = ()
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        reference = probe.declaration.reference
        if reference is None:
            raise Skipped("no reference is given")
        try:
            in_double(probe.native, reference).forward()
        except UserCodeError as error:
            raise Skipped(f"the reference does not run on these arguments: {error.short}") from error
        given = Against.as_given(probe.native, reference, _digits(probe))
        shapes = self._shapes(probe, given)
        if shapes is not None:
            yield shapes
            return
        trick = honesty.unwritten(probe, given)
        if trick is not None:
            yield self._trick(probe, trick)
            return
        if not (probe.repeats.forward and probe.repeats.backward):
            raise Skipped("results do not repeat under a held random state")
        wrong = self._forward(probe, given)
        if wrong is not None:
            yield wrong
            return
        gradients = list(self._gradients(probe, self._exactly(probe)))
        yield from gradients
        if not gradients:
            yield from self._pretending(probe, given)

    def _exactly(self, probe: Probe) -> Against:
        assert probe.declaration.reference is not None
        return Against.exactly(probe.exact, probe.declaration.reference, _digits(probe))

    def _forward(self, probe: Probe, given: Against) -> Finding | None:
        """The first of: what makes all outputs meaningless, other outputs in float64, at special values, as given, at other sizes."""
        exact = self._exactly(probe)
        trick = None if probe.repeats.forward_draws else honesty.independent(probe, given)
        if trick is not None:
            return self._trick(probe, trick)
        wrong = self._outputs(probe, exact, None, "")
        for point in special_points(probe.exact):
            if wrong is not None:
                return wrong
            wrong = self._outputs(probe, exact, {point.path: point.value}, f" at {point.path} with {point.name}")
        if wrong is not None or probe.repeats.forward_draws:
            return wrong
        dtype = str(given.dtype).removeprefix("torch.")
        wrong = self._outputs(probe, given, None, f" in {dtype}, as it is given" if given.dtype != exact.dtype else "")
        for variant in other_cuts(probe) if wrong is None else ():
            wrong = wrong or self._cut(probe, exact.at(variant.evaluator), variant.name)
        if wrong is None:
            sizes = honesty.other_sizes(given if tolerance.eps(given.dtype) < honesty.FEW_DIGITS else exact, SIZE_SECONDS)
            wrong = next((self._differs(probe, where, evidence, cause) for where, evidence, cause in sizes), None)
        return wrong and (wrong if wrong.cause else self._with_fallback(probe, exact, wrong))

    def _cut(self, probe: Probe, against: Against, name: str) -> Finding | None:
        """Compare with the work cut in other pieces, where forward and the reference still return outputs of the same shapes."""
        try:
            shapes = [[y.shape for y in e.forward().outputs] for e in (probe.exact, against.op, against.truth)]
        except UserCodeError:
            return None
        return self._outputs(probe, against, None, f" with {name}") if shapes[0] == shapes[1] and shapes[1][: len(shapes[2])] == shapes[2] else None

    def _with_fallback(self, probe: Probe, exact: Against, wrong: Finding) -> Finding:
        """Say so where the outputs that agreed are the reference's own."""
        assert probe.declaration.reference is not None
        trick = honesty.calls_reference(exact, probe.declaration.reference)
        if trick is None:
            return wrong
        cause = "on small float64 inputs, where the outputs agree, forward calls its reference; here it computes by itself"
        return replace(wrong, cause=cause, certain=True, evidence=(*wrong.evidence, trick.evidence))

    def _outputs(self, probe: Probe, against: Against, values: Mapping[str, Tensor] | None, where: str) -> Finding | None:
        try:
            evidence = against.outputs(values)
        except UserCodeError:
            return None
        if evidence is None or (values and evidence.error is not None and against.is_rounding(evidence.error, values)):
            return None
        if probe.repeats.forward_draws:
            raise Skipped("the op draws random numbers, and not the ones its reference draws")
        return self._differs(probe, where, evidence, picture=against.picture(values))

    def _differs(self, probe: Probe, where: str, evidence: Evidence, cause: str | None = None, picture: Mapping[str, JSON] | None = None) -> Finding:
        what = f"{probe.target.name}.forward" if probe.target.function else probe.target.name
        return self.finding(
            probe,
            f"{what} differs from its reference{where}",
            location=probe.forward_location,
            evidence=[evidence],
            cause=cause,
            certain=cause is not None,
            fix="Compare intermediate results of forward with the reference's; gradients are compared once the outputs agree.",
            attachments=picture,
        )

    def _shapes(self, probe: Probe, against: Against) -> Finding | None:
        got = [tuple(y.shape) for y in against.op.forward().outputs]
        expected = [tuple(y.shape) for y in against.truth.forward().outputs]
        if expected and expected == got[: len(expected)]:
            return None
        return self.finding(
            probe,
            f"{probe.target.name} returns outputs of other shapes than its reference",
            location=probe.forward_location,
            evidence=[Evidence("shapes of the outputs", got=str(got), expected=str(expected))],
            fix="The reference takes the op's own arguments and returns the same outputs (or the first of them).",
        )

    def _pretending(self, probe: Probe, given: Against) -> Iterator[Finding]:
        """What agrees so far: does it for every caller, every time, and by its own work?"""
        reference = probe.declaration.reference
        if probe.repeats.forward_draws or reference is None:
            return
        experiments = (
            lambda: honesty.stale(probe, given),
            lambda: honesty.watched(probe, given),
            lambda: honesty.calls_reference(given, reference),
            lambda: honesty.skipped_work(given),
        )
        for experiment in experiments:
            try:
                trick = experiment()
            except UserCodeError:
                continue
            if trick is not None:
                yield self._trick(probe, trick)
                return

    def _trick(self, probe: Probe, trick: Trick) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name}{trick.said}",
            severity="warning" if trick.harmless else "error",
            location=probe.backward_location if trick.path else probe.forward_location,
            evidence=[trick.evidence],
            cause=trick.cause,
            certain=True,
            fix=trick.fix,
            path=trick.path,
        )

    def _gradients(self, probe: Probe, against: Against) -> Iterator[Finding]:
        base = probe.baseline
        if probe.declaration.deliberate or base.backward_error is not None or not base.outcome or not base.outcome.carrying:
            return
        known = {v.path for v in (probe.value if probe.nonlinearity is None else probe.value_nonnegative).wrong}
        outcome = against.op.forward()
        drawn = probe.cotangents(outcome)
        if probe.nonlinearity is not None:
            drawn = [c if c.is_complex() else c.abs() for c in drawn]
        got = against.op.vjp(outcome, against.shared(outcome, drawn))
        try:
            want = against.gradients(outcome, drawn)
        except UserCodeError:
            return
        for leaf, a, b in zip(against.op.wanted, got, want or (), strict=False):
            if leaf.path in known or b is None or probe.explained(leaf.path, "PB501", "PB509", "PB510", "PB601", "PB602", "PB611"):
                continue
            mine = torch.zeros_like(leaf.template) if a is None else a.detach()
            spot = compare(leaf.path, mine.to(b.dtype), b.detach(), [copy_tensor(c) for c in drawn], against.dtype)
            if spot is not None and bool(torch.isfinite(b).all()) and not probe.deliberate(leaf.path):
                yield self.finding(
                    probe,
                    f"{probe.backward_name} returns another gradient for {leaf.path} than the reference",
                    evidence=[spot.evidence],
                    fix=f"Take the value of grad_{leaf.path} at this point from the reference (where there is a kink, the reference decides).",
                    path=leaf.path,
                    attachments=spot.attachments,
                )


def _digits(probe: Probe) -> torch.dtype:
    try:
        return digits(probe.exact, probe.value)
    except UserCodeError:
        return max((leaf.template.dtype for leaf in probe.exact.wanted), key=lambda d: torch.finfo(d).eps, default=torch.float64)
