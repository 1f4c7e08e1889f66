"""PB511."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped
from ..evaluate import Evaluator, UserCodeError, copy_tensor, differentiable
from ..locate import compare
from ..probe import Probe
from ..single import digits
from ..special import special_points
from ..truth import other


class WrongForward(Check):
    """The forward, or a gradient, differs from the reference that was given for it.

    Why it matters:
        A gradient that belongs to a wrong forward passes every test of gradients: only another way of computing the same shows the fault.

    How it is measured:
        The reference is evaluated in float64 on the same values. Outputs, and gradients for signed grad_outputs, must agree to half the digits of the
        dtype in which the op works; outputs also at special values (zeros, ties, the numbers among the arguments as input values).

    Example:
        A chunked loss that gives every chunk the labels of the first one; its gradient is the derivative of that wrong loss.

    Instead:
        Compare intermediate results with the reference's, beginning at the output that the evidence names.

    Limits:
        A random op is compared only if it repeats the reference's draws. A reference that is wrong itself is believed.
    """

    code = "PB511"
    name = "wrong-forward"
    severity = "error"
    needs = ("repeats",)
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.declaration.reference is None:
            raise Skipped("no reference is given")
        truth = _reference(probe)
        dtype = _digits(probe)
        wrong = self._outputs(probe, truth, dtype, None, "")
        for point in special_points(probe.exact):
            if wrong is not None:
                break
            wrong = self._outputs(probe, truth, dtype, {point.path: point.value}, f" at {point.path} with {point.name}")
        if wrong is not None:
            yield wrong
        elif probe.baseline.backward_error is None and probe.baseline.outcome and probe.baseline.outcome.carrying:
            yield from self._gradients(probe, truth, dtype)

    def _outputs(self, probe: Probe, truth: Evaluator, dtype: torch.dtype, values: Mapping[str, Tensor] | None, where: str) -> Finding | None:
        try:
            outcome, expected = probe.exact.forward(values=values), truth.forward(values=values)
        except UserCodeError as error:
            if values is None:
                raise Skipped(f"the reference does not run on these arguments: {error.short}") from error
            return None
        shapes = [tuple(y.shape) for y in outcome.outputs]
        others = [tuple(y.shape) for y in expected.outputs]
        if not others or others != shapes[: len(others)]:
            return self._shapes(probe, shapes, others) if values is None else None
        for path, got, want in zip(outcome.paths, outcome.outputs, expected.outputs, strict=False):
            evidence = _difference(path, got.detach(), want.detach(), dtype)
            if evidence is None:
                continue
            if probe.repeats.forward_draws:
                raise Skipped("the op draws random numbers, and not the ones its reference draws")
            return self.finding(
                probe,
                f"{probe.target.name}.forward differs from its reference{where}"
                if probe.target.function
                else f"{probe.target.name} differs from its reference{where}",
                location=probe.forward_location,
                evidence=[evidence],
                fix="Compare intermediate results of forward with the reference's; gradients are compared once the outputs agree.",
            )
        return None

    def _shapes(self, probe: Probe, shapes: list[tuple[int, ...]], others: list[tuple[int, ...]]) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name} returns outputs of other shapes than its reference",
            location=probe.forward_location,
            evidence=[Evidence("shapes of the outputs", got=str(shapes), expected=str(others))],
            fix="The reference takes the op's own arguments and returns the same outputs (or the first of them).",
        )

    def _gradients(self, probe: Probe, truth: Evaluator, dtype: torch.dtype) -> Iterator[Finding]:
        if probe.declaration.deliberate:
            return
        known = {v.path for v in (probe.value if probe.nonlinearity is None else probe.value_nonnegative).wrong}
        outcome, expected = probe.exact.forward(), truth.forward()
        drawn = probe.cotangents(outcome)
        if probe.nonlinearity is not None:
            drawn = [c if c.is_complex() else c.abs() for c in drawn]
        cotangents = dict(zip(outcome.carrying, drawn, strict=True))
        shared = {i for i in cotangents if i < len(expected.outputs)}
        got = probe.exact.vjp(outcome, [copy_tensor(cotangents[i]) if i in shared else None for i in outcome.carrying])
        try:
            want = truth.vjp(expected, [cotangents[i].to(expected.outputs[i].dtype) if i in shared else None for i in expected.carrying])
        except UserCodeError:
            return
        for leaf, a, b in zip(probe.exact.wanted, got, want, strict=True):
            if leaf.path in known or b is None or probe.explained(leaf.path, "PB501", "PB509", "PB510", "PB601", "PB602", "PB611"):
                continue
            mine = torch.zeros_like(leaf.template) if a is None else a.detach()
            spot = compare(leaf.path, mine.to(b.dtype), b.detach(), list(drawn), dtype)
            if spot is not None and bool(torch.isfinite(b).all()) and not probe.deliberate(leaf.path):
                yield self.finding(
                    probe,
                    f"{probe.backward_name} returns another gradient for {leaf.path} than the reference",
                    evidence=[spot.evidence],
                    fix=f"Take the value of grad_{leaf.path} at this point from the reference (where there is a kink, the reference decides).",
                    path=leaf.path,
                    attachments=spot.attachments,
                )


def _reference(probe: Probe) -> Evaluator:
    call = probe.declaration.reference
    assert call is not None
    wide = other(probe.exact.cast(torch.float64), call)
    try:
        wide.forward()
    except UserCodeError:
        return other(probe.exact, call)
    return wide


def _digits(probe: Probe) -> torch.dtype:
    try:
        return digits(probe.exact, probe.value)
    except UserCodeError:
        return max((leaf.template.dtype for leaf in probe.exact.wanted), key=lambda d: torch.finfo(d).eps, default=torch.float64)


def _difference(path: str, got: Tensor, want: Tensor, dtype: torch.dtype) -> Evidence | None:
    if got.numel() == 0 or got.layout is not torch.strided or want.layout is not torch.strided:
        return None
    if not differentiable(want):
        return None if torch.equal(got.to(want.dtype), want) else Evidence(f"{path}: {int((got != want).sum())} of {got.numel()} elements differ")
    kept = torch.isfinite(want)
    if not bool(kept.any()):
        return None
    wide = torch.complex128 if want.is_complex() or got.is_complex() else torch.float64
    gap = torch.where(kept, (got.to(wide) - want.to(wide)).abs(), 0.0).nan_to_num(nan=torch.inf)
    scale = float(want[kept].abs().max())
    allowed = tolerance.analytic(dtype, scale)
    error = float(gap.max())
    if error <= allowed:
        return None
    at = int(gap.argmax())
    count = int((gap > allowed).sum())
    text = f"{path}: {count} of {gap.numel()} elements differ" if gap.numel() > 1 else path
    return Evidence(text, f"{got.flatten()[at].item():.6g}", f"{want.flatten()[at].item():.6g}", error, allowed, tolerance.WHY_ANALYTIC)
