"""PB502."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...capture.source import text_of_class
from ...report.finding import Evidence, Finding, Severity
from .. import tolerance
from ..base import Check, Skipped
from ..branches import asks_about, asks_for, blurred, excused, on_purpose
from ..breaks import breaks_on_the_way
from ..contents import other_contents, severity_of
from ..edges import Edge, failures, gradient_pair
from ..evaluate import Evaluator, UserCodeError
from ..locate import locate_at, trusted_eager
from ..positions import other_positions
from ..probe import Probe
from ..raising import raises_with, severity_of_raising
from ..refusals import refuses
from ..same_calls import same_calls
from ..special import index_points, loses_finiteness, plain_points, points_beside, special_points
from ..thresholds import threshold_points
from ..truth import eager
from ..value import InputVerdict, ValueTest
from ..variants import Variant, epsilon_among, other_numbers
from ..words import gradient_name, told_apart

BUDGET = 1.0
CONTENTS_BUDGET = 0.4
SWITCHED_ON = 2.0**-6
"""A part of the way from a number that switches something off."""
REGULARISED = 1e-5
"""A gradient that is off by less than this part of itself at special values of its own input is regularised there, not wrong."""
EPSILONS = 10
"""A gradient that is off by less than so many times a larger epsilon is off by nothing at the epsilon that is used."""


@dataclass(frozen=True, slots=True)
class Place:
    """The call at special values.

    Args:
        where: What is special, in words.
        evaluator: The call.
        own: The input whose values were changed; empty where something else was.
        severity: How bad a wrong gradient is there.
        number: The number among the arguments that was changed; empty where something else was.
        setting: The call with that number and nothing else changed; None where there is more, or something else.
    """

    where: str
    evaluator: Evaluator
    own: str = ""
    severity: Severity = "error"
    number: str = ""
    setting: Variant | None = None


class WrongGradientAtEdge(Check):
    """The gradient is right at ordinary values and wrong, or NaN, at special ones: zeros, ties, bounds, other settings.

    Why it matters:
        Zeros are the commonest values of all (padding, masks, ReLU outputs); one NaN there spreads through the whole model.

    How it is measured:
        The value test of PB501 at zeros, at equal entries, at every number among the arguments as an input value and a step beside it, and
        for other values of those numbers (0, negated, 1, 1.3 and ten times, 1e-12), again with entries beside them and, where that makes the
        gradient NaN, at 0 and 1; for an axis counted from the other end, for indices of 32 bits instead of 64, for a scale shaped as the code
        asks, with a blank that no label is, and with an entry to be skipped that an index holds; where all entries have one sign, with every
        second one turned (a warning: perhaps the other sign is never meant); with -1, or the negative number that the code compares with, in
        index arguments; with other permutations, and with unequal numbers in tuples of equal ones; with entries on either side of the numbers
        that forward compares its tensors with or clamps them to. At kinks every value between the one-sided derivatives is accepted. Where
        the test fails, autograd through the forward must pass it at the same point, and other rounding must not move the gradient as far:
        else nothing is claimed. Arguments that are not differentiated get other contents: an index that repeats or leaves a row out, an empty
        segment, labels that are all ignored, masks all true and all false, the other sign (also of targets that are all 1), others than all 0 or
        all 1, times that run back; where they break what the sample obeys (distinct, positive), it is a warning. So is a backward that raises, other
        than by a ``raise`` of its own, with another value of a number.

    Example:
        The gradient of a product computed as ``y / x``: NaN or 0 at ``x == 0``.

    Instead:
        Compute the gradient without dividing by what may be zero, or treat that value by itself.

    Limits:
        A NaN that autograd of the forward gives as well is a note, so is one where a number and an input are both special, and an error at 32 bits,
        and so are another choice than autograd's at a kink, a gradient that is off by less than 1e-5 of itself at special values of its own input,
        and one that turns wrong, as a number changes, where forward itself breaks (jumps, has a pole, refuses): values beyond are outside of what
        the formula is for.
    """

    code = "PB502"
    name = "wrong-gradient-at-edge"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.explained("", "PB611"):
            raise Skipped("reads an argument's memory behind its back (PB611), so that other inputs cannot be right")
        if probe.declaration.deliberate or probe.nonlinearity is not None:
            raise Skipped("the gradient is not the forward's derivative")
        if any(probe.deliberate(leaf.path) for leaf in probe.exact.wanted):
            raise Skipped("the Function looks like a surrogate")
        reported: set[tuple[str, str]] = set()
        yield from self._at_contents(probe, reported)
        yield from self._at_same_calls(probe)
        end = time.thread_time() + probe.seconds(BUDGET)
        for place in _in_turn(_special(probe), _set_otherwise(probe), probe.seconds(BUDGET) / 2):
            for finding, key in self._at(probe, place):
                if key not in reported:
                    reported.add(key)
                    yield finding
            if time.thread_time() > end:
                if not reported:
                    raise Skipped(f"no fault found within {probe.seconds(BUDGET)} s; the last point was {place.where}")
                return

    def _at(self, probe: Probe, place: Place) -> Iterator[tuple[Finding, tuple[str, str]]]:
        evaluator = place.evaluator
        try:
            edges = failures(probe, evaluator)
        except UserCodeError as error:
            severity = None if place.setting is None else severity_of_raising(probe, place.setting, error)
            if place.setting is not None and severity is not None:
                yield raises_with(self, probe, place.setting, error, severity), (place.number, f"{severity}, raises")
            return
        for edge in edges:
            if _meant(probe, place, edge):
                continue
            finding = self._failure(probe, place, edge)
            yield finding, (edge.verdict.path, "note" if finding.severity == "note" else "error")
        if edges or probe.repeats.forward_draws:
            return
        for leaf in evaluator.wanted:
            choice = _other_choice(probe, evaluator, leaf.path)
            if choice is not None:
                yield self._choice(probe, place.where, leaf.path, *choice), (leaf.path, "note")

    def _at_same_calls(self, probe: Probe) -> Iterator[Finding]:
        """Judge the gradients where an argument says the same in another way, so that forward returns the same."""
        for call in same_calls(probe):
            try:
                if not failures(probe, call.evaluator):
                    continue
                got, what, silent = "another gradient", "returns a wrong gradient", True
            except UserCodeError as error:
                if error.stage == "forward" or refuses(error):
                    continue
                got, what, silent = error.short, "raises", False
            yield self.finding(
                probe,
                f"{probe.backward_name} {what} with {call.name}, with which forward returns the same as with {call.usual}",
                severity="error" if call.meant else "warning" if silent else "note",
                evidence=[Evidence(f"backward with {call.name}", got, f"the gradient, as with {call.usual}")],
                cause=call.cause,
                certain=True,
                fix=call.fix,
                path="",
            )

    def _at_contents(self, probe: Probe, reported: set[tuple[str, str]]) -> Iterator[Finding]:
        """Judge the gradients with other contents of what is not differentiated."""
        end = time.thread_time() + probe.seconds(CONTENTS_BUDGET)
        for content in other_contents(probe):
            if time.thread_time() > end:
                return
            evaluator = _lean(probe.exact, probe.exact.variant({content.path: content.value}))
            try:
                found = [(edge, severity_of(probe, content, evaluator, edge)) for edge in failures(probe, evaluator)]
            except UserCodeError:
                continue
            for edge, severity in found:
                key = (edge.verdict.path, severity or "")
                if severity is not None and key not in reported:
                    reported.add(key)
                    failure = self._failure(probe, Place(content.where, evaluator), edge)
                    cause = f"right if {content.contract}: is that the contract?" if content.contract else failure.cause
                    yield replace(failure, severity=severity, cause=cause)

    def _failure(self, probe: Probe, place: Place, edge: Edge) -> Finding:
        v = edge.verdict
        name, where = probe.backward_name, place.where
        if edge.kind == "nan too":
            return self.finding(
                probe,
                f"{name} returns NaN for {v.path}, at {where}",
                severity="note",
                evidence=[Evidence(f"{gradient_name(v.path)} at {where}", got="nan", expected="a number; autograd of the forward gives NaN as well")],
                fix=f"If this value of {place.number} is meant, treat it by itself."
                if place.number
                else "If such values occur, treat them by themselves (torch.where on the input, not on the result).",
                path=v.path,
            )
        spot = locate_at(probe, v.path, place.evaluator)
        evidence = [*([] if spot is None else [spot.evidence]), v.evidence(f"at {where}, along a random direction of {v.path}")]
        what = "returns NaN" if edge.kind == "nan" else "returns a wrong gradient"
        share = v.error / max(abs(v.got), abs(v.low), abs(v.high)) if v.error > 0 else math.inf
        regularised = (place.own == v.path and share < REGULARISED) or share < EPSILONS * epsilon_among(place.evaluator, place.number)
        named = place.number if place.number and not asks_for(probe, place.number, place.evaluator) else ""
        if named and _behind(probe, place, edge):
            return self._behind_a_break(probe, place, v, evidence)
        cause, fix = _regularised(share) if regularised else _known(probe, place, edge)
        return self.finding(
            probe,
            f"{name} {what} for {v.path}, at {where}",
            severity="note" if regularised else place.severity,
            evidence=evidence,
            attachments=None if spot is None else spot.attachments,
            cause=cause,
            certain=not regularised,
            fix=fix,
            path=v.path,
        )

    def _behind_a_break(self, probe: Probe, place: Place, v: InputVerdict, evidence: list[Evidence]) -> Finding:
        used = dict(probe.exact.named)[place.number]
        return self.finding(
            probe,
            f"{probe.backward_name} returns a wrong gradient for {v.path}, at {place.where}, behind a break of forward",
            severity="note",
            evidence=evidence,
            cause=f"on the way there from {place.number}={used!r} the gradient is right up to where forward itself jumps, has a pole or refuses, "
            "or where rounding takes over",
            fix=f"Nothing, if such values of {place.number} are never meant; else refuse them in forward.",
            path=v.path,
        )

    def _choice(self, probe: Probe, where: str, path: str, got: Tensor, expected: Tensor) -> Finding:
        at = int((got - expected).abs().argmax())
        shown = told_apart(got.flatten()[at].item(), expected.flatten()[at].item())
        return self.finding(
            probe,
            f"{probe.backward_name} takes another value than autograd for {path} at a kink, {where}",
            severity="note",
            evidence=[
                Evidence(
                    f"{gradient_name(path)}, an entry at the kink",
                    shown[0],
                    f"{shown[1]} by autograd of the forward; both lie between the one-sided derivatives",
                )
            ],
            fix="Nothing, if it is meant; else include or exclude the bound as the forward's operators do.",
            path=path,
        )


def _regularised(share: float) -> tuple[str, str]:
    cause = f"it is off by {share:.0e} of itself: a term that keeps a division from zero, or an iteration that stops early, shows there"
    return cause, "Nothing, if it is exact enough for you."


def _known(probe: Probe, place: Place, edge: Edge) -> tuple[str, str]:
    """What is known of a gradient that is right at the sample, and what to do."""
    gradient = gradient_name(edge.verdict.path)
    if place.number:
        used = dict(probe.exact.named)[place.number]
        if edge.kind == "wrong":
            return f"with {place.number}={used!r}, as in the sample, the gradient is right", f"Compare how forward and backward use {place.number}."
        return (
            f"with {place.number}={used!r}, as in the sample, the gradient is a number",
            f"Treat this value of {place.number} by itself in backward.",
        )
    if place.own:
        what = "right" if edge.kind == "wrong" else "a number"
        return (
            f"at the sample's values of {place.own} the gradient is {what}",
            f"Compute {gradient} at this value as the limit that forward has there.",
        )
    return "with the sample's arguments the gradient is right", f"Compare how forward and backward use what is special there, for {gradient}."


def _in_turn(first: Iterator[Place], second: Iterator[Place], seconds: float) -> Iterator[Place]:
    """Yield the places of the first until they have taken some seconds, those of the second, and then the rest of the first."""
    end = time.thread_time() + seconds
    for place in first:
        yield place
        if time.thread_time() > end:
            break
    yield from second
    yield from first


def _special(probe: Probe) -> Iterator[Place]:
    """The call with special entries in its tensors."""
    exact = probe.exact
    source = "" if probe.function is None else text_of_class(probe.function)
    for point in (*special_points(exact), *threshold_points(probe), *index_points(exact, source, _globals(probe))):
        evaluator = _lean(exact, exact.variant({point.path: point.value}))
        yield Place(f"{point.path} with {point.name}", evaluator, point.path, "error" if point.meant else "warning")


def _set_otherwise(probe: Probe) -> Iterator[Place]:
    """The call with other axes and other numbers."""
    exact = probe.exact
    if any(f.code == "PB614" and f.severity != "note" for f in probe.findings):
        return  # What the sample's call left behind would show here as a fault of the number.
    for variant in other_positions(probe):
        yield Place(variant.name, _lean(exact, variant.evaluator))
    for variant in other_numbers(probe):
        yield Place(variant.name, _lean(exact, variant.evaluator), number=variant.path, setting=variant)
        for point in plain_points(variant.evaluator):
            evaluator = _lean(exact, variant.evaluator.variant({point.path: point.value}))
            if loses_finiteness(evaluator):
                yield Place(f"{variant.name} and {point.path} with {point.name}", evaluator, point.path, "note", variant.path)
        for point in points_beside(variant.evaluator, variant.path):
            evaluator = _lean(exact, variant.evaluator.variant({point.path: point.value}))
            yield Place(f"{variant.name} and {point.path} with {point.name}", evaluator, number=variant.path)


def _behind(probe: Probe, place: Place, edge: Edge) -> bool:
    """Whether the number lies beyond a break of forward, counted from where it takes effect; NaN at a whole number needs no way there."""
    name, seed = place.number, probe.settings.seed
    start, end = (dict(call.named)[name] for call in (probe.exact, place.evaluator))
    if edge.kind == "nan" and float(end).is_integer():
        return False
    base = probe.exact
    if isinstance(start, float) and asks_about(probe, name, start):
        # The sample has switched something off, and the step to where it is on is no break.
        base = place.evaluator.variant({name: start + SWITCHED_ON * (end - start)})
        if not ValueTest(base, seed=seed).careful(edge.verdict.path).ok:
            return False
    return breaks_on_the_way(base, place.evaluator, name, edge.verdict.path, seed)


def _meant(probe: Probe, place: Place, edge: Edge) -> bool:
    """Whether the gradient is changed on purpose: by a number, or by a surrogate that the sample shows too coarsely to tell."""
    if place.number:
        return on_purpose(probe, place.evaluator, edge)
    return blurred(probe, edge.verdict.path) and excused(probe, place.evaluator, edge)


def _globals(probe: Probe) -> dict[str, Any]:
    return getattr(inspect.unwrap(probe.function.forward), "__globals__", {}) if probe.function is not None else {}


def _lean(base: Evaluator, variant: Evaluator) -> Evaluator:
    variant.hold_everything = base.hold_everything
    return variant


def _usual(probe: Probe, path: str) -> list[Tensor]:
    """Return the gradient of an input at the sample: where all of it is zero at a kink, its size says what rounding is."""
    named = zip((leaf.path for leaf in probe.native.wanted), probe.baseline.gradients, strict=False)
    return [g for name, g in named if name == path and g is not None and g.numel()]


def _other_choice(probe: Probe, evaluator: Evaluator, path: str) -> tuple[Tensor, Tensor] | None:
    """Return backward's gradient and autograd's where both are finite and differ although both pass the test."""
    if not probe.value.inputs[path].ok or trusted_eager(probe, path) is None:
        return None
    pair = gradient_pair(probe, evaluator, eager(evaluator), path)
    if pair is None or pair[0].is_complex() or not all(bool(torch.isfinite(g).all()) for g in pair) or pair[0].numel() == 0:
        return None
    got, expected = pair
    scale = max(float(g.abs().max()) for g in (got, expected, *_usual(probe, path)))
    differs = float((got - expected).abs().max()) > 1e3 * tolerance.analytic(got.dtype, scale)
    return pair if differs else None
