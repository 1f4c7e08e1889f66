"""PB501."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import chain

from ...diagnosis.mismatch import Guess
from ...diagnosis.where import describe
from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped
from ..branches import excused, next_counts, other_settings, switches_off
from ..combinations import Pairing
from ..conjugates import missing_conjugate
from ..correct import corrected_line
from ..diagnose import causes
from ..edges import agree, by_entry, failures
from ..evaluate import UserCodeError
from ..joined import joined_settings
from ..locate import locate, locate_at
from ..meter import Spent
from ..probe import Probe
from ..process_flags import process_flags
from ..raising import raises_with, severity_of_raising
from ..rounding import rounded_away
from ..squares import with_squares
from ..truth import eager
from ..value import InputVerdict
from ..variants import Variant, other_branches
from ..words import gradient_name

BUDGET = 0.5
NOISELESS = 1e-12
"""Above this relative noise of the forward differences are coarse, and autograd of the forward that agrees with backward clears it."""


class WrongGradient(Check):
    """The gradient that backward returns is not the derivative of forward.

    Why it matters:
        Training goes in a wrong direction, often slowly enough to be taken for a bad learning rate.

    How it is measured:
        Each input moves along random signed directions; the change of the outputs, paired with random signed cotangents ±{1/2, 1, 2}, must equal the
        change that backward predicts. A five-point stencil per output element gives the derivative, its truncation and its rounding noise, and at
        kinks the interval between the one-sided derivatives; the tolerance is the sum of what was measured. Where backward is not linear in
        grad_output the comparison uses non-negative cotangents. Where the gradient is right, flags are turned round, optional arguments left out or,
        where they are None, given (a number or a tensor that forward takes and that changes its output), and the words and whole numbers that the
        code compares an argument with are passed, also for parameters that the sample leaves at their default, and other floats and the next whole
        number for those; an axis is tried with its neighbour in every tensor, and where both are as long, two groups with half the channels. Settings
        that are right alone are then tried two at a time, and a flag that forward refuses with square matrices. Where backward raises with one of
        them, other than by a ``raise`` of its own, it is a warning, on searched inputs a note.

    Example:
        ``return 2 * grad_output`` for ``forward = x * x``: the factor x is missing.

    Instead:
        Derive the formula again; the evidence shows an element with what was got and what was expected.

    Limits:
        Points where no output element has a measurable slope are skipped with a reason. A gradient that is deliberately another one is declared
        (``exact=False``, ``surrogate=``), and then this check is replaced by PB508.
    """

    code = "PB501"
    name = "wrong-gradient"
    severity = "error"
    stage = 2
    metered = False

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.declaration.deliberate and probe.declaration.linear:
            raise Skipped("declared: the gradient is not the forward's derivative")
        if not probe.declaration.exact or probe.declaration.surrogate:
            raise Skipped("declared: the gradient is not the forward's derivative")
        verdict = probe.value if probe.nonlinearity is None else probe.value_nonnegative
        for wrong in verdict.wrong:
            if (
                probe.deliberate(wrong.path)
                or (wrong.none and not probe.explained(wrong.path))
                or probe.explained(wrong.path, "PB601", "PB602", "PB611", "PB614", "PB615")
                or (probe.settings.runs("PB510") and missing_conjugate(probe, wrong.path))
                or (wrong.low != wrong.high and not by_entry(probe, probe.exact, wrong.path))
                or (wrong.noise > NOISELESS and agree(probe, probe.exact, eager(probe.exact), wrong.path))
                or (wrong.got == wrong.got and rounded_away(probe, probe.exact, wrong, _unit(probe, wrong.path)))
            ):
                continue
            yield self._wrong(probe, wrong)
        if not verdict.wrong and probe.nonlinearity is None:
            with suppress(Spent), probe.meter.sweep():
                yield from self._in_other_branches(probe)
        blurred = max(verdict.inputs.values(), key=lambda v: v.unseen, default=None)
        if blurred is not None and blurred.ok and blurred.unseen:
            probe.remarks[self.code] = (
                f"in this precision an error of less than {blurred.unseen:.1g} of {gradient_name(blurred.path)} would go unseen"
            )
        unmeasured = [v for v in verdict.inputs.values() if v.ok is None]
        if unmeasured and len(unmeasured) == len(verdict.inputs):
            raise Skipped(unmeasured[0].reason)

    def _in_other_branches(self, probe: Probe) -> Iterator[Finding]:
        end = time.thread_time() + probe.seconds(BUDGET)
        told: set[tuple[str, str]] = set()
        settings = Pairing(probe)
        # Pairs come last, once it is known which single settings are right.
        for variant in chain(
            other_branches(probe), other_settings(probe), process_flags(probe), joined_settings(probe), next_counts(probe), _later(settings.pairs)
        ):
            if time.thread_time() > end:
                return
            single, variant = variant, with_squares(variant) or variant
            try:
                with variant.within():
                    edges = failures(probe, variant.evaluator, new=(variant.path, variant.partner) if variant.guessed else ())
            except UserCodeError as error:
                severity = severity_of_raising(probe, variant, error)
                if severity is not None:
                    yield raises_with(self, probe, variant, error, severity)
                continue
            if not edges and not variant.partner and variant.within is nullcontext:
                settings.add(single)
            for edge in edges:
                if edge.verdict.none and variant.guessed and edge.verdict.path in (variant.path, variant.partner):
                    continue
                about = (variant.path, edge.verdict.path)
                if (
                    edge.kind != "nan too"
                    and not (variant.guessed and about in told)
                    and (switches_off(variant, edge) or not excused(probe, variant.evaluator, edge))
                ):
                    told.add(about)
                    yield self._wrong_in_branch(probe, variant, edge.verdict)

    def _wrong_in_branch(self, probe: Probe, variant: Variant, wrong: InputVerdict) -> Finding:
        nothing = "no gradient" if wrong.none else "a wrong gradient"
        with variant.within():
            spot = locate_at(probe, wrong.path, variant.evaluator)
        return self.finding(
            probe,
            f"{probe.backward_name_of(wrong.path)} returns {nothing} for {wrong.path} with {variant.name}",
            evidence=[
                *([] if spot is None else [spot.evidence]),
                wrong.evidence(f"with {variant.name}, along a random direction of {wrong.path}, paired with a random grad_output"),
            ],
            cause=f"a branch of backward for {variant.changed} is wrong; as in the sample the gradient is right"
            + (", and so it is with one of them" if variant.partner else ""),
            certain=True,
            fix=f"Check {gradient_name(wrong.path)} in the branch that {variant.name} takes.",
            severity="warning" if variant.tensors_guessed else "error",
            path=wrong.path,
            attachments=None if spot is None else spot.attachments,
        )

    def _wrong(self, probe: Probe, wrong: InputVerdict) -> Finding:
        spot = locate(probe, wrong.path)
        guesses = causes(probe, wrong.path)
        evidence = [wrong.evidence(f"along a random direction of {wrong.path}, paired with a random grad_output")]
        attachments = dict(spot.attachments) if spot is not None else {}
        if spot is not None:
            evidence.insert(0, spot.evidence)
        if guesses:
            attachments["cause"] = guesses[0].name
        if spot is not None and not guesses:
            where = describe(spot.got, spot.expected, {leaf.path: leaf.template for leaf in probe.exact.leaves})
            evidence += [Evidence(f"no known pattern explains it: {where}")] if where else []
        single = bool(guesses) and guesses[0].name == "low-precision-inside" and "float32" in guesses[0].text
        return self.finding(
            probe,
            f"{probe.backward_name_of(wrong.path)} returns {'only single precision' if single else 'a wrong gradient'} for {wrong.path}",
            evidence=evidence,
            severity="note" if single else "error",
            path=wrong.path,
            attachments=attachments,
            cause=guesses[0].text if guesses else None,
            certain=bool(guesses) and guesses[0].certain,
            fix=_fix(probe, wrong.path, guesses[0] if guesses else None),
        )


def _later(pairs: Callable[[], Iterator[Variant]]) -> Iterator[Variant]:
    yield from pairs()


def _unit(probe: Probe, path: str) -> float:
    return tolerance.eps(next(leaf.template.dtype for leaf in probe.exact.wanted if leaf.path == path))


def _fix(probe: Probe, path: str, guess: Guess | None) -> str:
    if guess is None or guess.fix is None:
        return f"Check the formula of {gradient_name(path)} against the derivative of forward."
    line = corrected_line(probe, path, guess.mend) if guess.certain else None
    return guess.fix if line is None else f"{guess.fix}: `{line}`"
