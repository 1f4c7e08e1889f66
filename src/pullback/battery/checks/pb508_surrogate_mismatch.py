"""PB508."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..branches import defaults_set
from ..evaluate import Evaluator, UserCodeError
from ..locate import compare
from ..probe import Probe
from ..special import Point, special_points
from ..tensors import copy_tensor
from ..truth import other
from ..variants import Variant, other_branches, other_numbers

BUDGET = 0.5


class SurrogateMismatch(Check):
    """backward does not return the gradient of the declared surrogate.

    Why it matters:
        A surrogate is the only statement of what a deliberate gradient should be; where backward departs from it, the model is trained with another
        rule than the one written down.

    How it is measured:
        Autograd through the surrogate gives the expected gradients for the same arguments and the same signed grad_outputs: at the sample, and at
        special values (zeros, ties, every number among the arguments as an input value, and a step beside it), where bounds are decided; then at the
        sample with other settings: numbers, flags, parameters left at their default (a warning).

    Example:
        ``grad * (x < hi)`` for the surrogate ``x.clamp(max=hi)``, whose gradient at ``x == hi`` is 1.

    Instead:
        Take the comparison (``<=`` or ``<``) from the surrogate, or declare the surrogate that is meant.
    """

    code = "PB508"
    name = "surrogate-mismatch"
    severity = "error"
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        surrogate = probe.declaration.surrogate
        if surrogate is None:
            raise Skipped("no surrogate is declared")
        if probe.explained("", "PB601", "PB602"):
            raise Skipped("backward returns the wrong number or shape of gradients")
        truth = other(probe.exact, surrogate)
        problem = self._problem(probe, truth)
        if problem is not None:
            yield problem
            return
        wrong: set[str] = set()
        for finding, path in self._mismatches(probe, truth, None):
            wrong.add(path)
            yield finding
        for point in special_points(probe.exact):
            for finding, path in self._mismatches(probe, truth, point):
                if path not in wrong:
                    wrong.add(path)
                    yield finding
        yield from self._set_otherwise(probe, wrong)

    def _set_otherwise(self, probe: Probe, wrong: set[str]) -> Iterator[Finding]:
        surrogate = probe.declaration.surrogate
        assert surrogate is not None
        end = time.thread_time() + probe.seconds(BUDGET)
        for variant in (*other_numbers(probe), *other_branches(probe), *defaults_set(probe)):
            if time.thread_time() > end:
                return
            if variant.passed and _turns_sign(probe, variant):
                continue
            for finding, path in self._compared(probe, variant.evaluator, other(variant.evaluator, surrogate), None, f"with {variant.name}"):
                if path not in wrong:
                    wrong.add(path)
                    yield replace(finding, severity="error" if variant.passed else "warning", cause=f"what {variant.path} changes is not in backward")

    def _problem(self, probe: Probe, truth: Evaluator) -> Finding | None:
        outcome = probe.exact.forward()
        try:
            expected = truth.forward()
        except UserCodeError as error:
            return self._unusable(probe, "raises", error.short, "the outputs of the op")
        shapes = [tuple(y.shape) for y in outcome.outputs]
        got = [tuple(y.shape) for y in expected.outputs]
        if got == shapes[: len(got)] and got:
            return None
        return self._unusable(probe, "returns something else than the op", f"shapes {got}", f"shapes {shapes}")

    def _unusable(self, probe: Probe, what: str, got: str, expected: str) -> Finding:
        return self.finding(
            probe,
            f"the surrogate declared for {probe.target.name} {what}, so that nothing can be compared",
            evidence=[Evidence("surrogate(*arguments of the op)", got=got, expected=expected)],
            fix="The surrogate takes the op's own arguments and returns outputs of the same shapes, computed with torch operators.",
        )

    def _mismatches(self, probe: Probe, truth: Evaluator, point: Point | None) -> Iterator[tuple[Finding, str]]:
        where = "at the sample" if point is None else f"at {point.path} with {point.name}"
        yield from self._compared(probe, probe.exact, truth, point, where)

    def _compared(self, probe: Probe, op: Evaluator, truth: Evaluator, point: Point | None, where: str) -> Iterator[tuple[Finding, str]]:
        pair = _gradients(probe, op, truth, None if point is None else {point.path: point.value})
        if pair is None:
            return
        for leaf, got, expected, cotangents in pair:
            spot = compare(leaf, got, expected, cotangents)
            if spot is None or not bool(torch.isfinite(expected).all()):
                continue
            found = self.finding(
                probe,
                f"{probe.backward_name} does not return the declared surrogate's gradient for {leaf}, {where}",
                evidence=[spot.evidence],
                cause="a bound or threshold is compared otherwise than in the surrogate" if point is not None else None,
                fix=f"Make backward return the gradient of the surrogate for {leaf}, or declare the surrogate that is meant.",
                path=leaf,
                attachments=spot.attachments,
            )
            yield found, leaf


def _turns_sign(probe: Probe, variant: Variant) -> bool:
    """Whether a positive number became 0 or negative: a scale or a bound is none then, and a surrogate says nothing of it."""
    value = dict(probe.exact.named).get(variant.path)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 >= variant.value


def _gradients(
    probe: Probe, op: Evaluator, truth: Evaluator, values: Mapping[str, Tensor] | None
) -> list[tuple[str, Tensor, Tensor, list[Tensor]]] | None:
    try:
        outcome, reference = op.forward(values=values), truth.forward(values=values)
        shared = [i for i in outcome.carrying if i < len(reference.outputs)]
        drawn = dict(zip(outcome.carrying, probe.cotangents(outcome), strict=True))
        got = op.vjp(outcome, [copy_tensor(drawn[i]) if i in shared else None for i in outcome.carrying])
        expected = truth.vjp(reference, [drawn[i].to(reference.outputs[i].dtype) if i in shared else None for i in reference.carrying])
    except UserCodeError:
        return None
    rows = zip(op.wanted, got, expected, strict=True)
    cotangents = [drawn[i] for i in shared]
    return [(leaf.path, _whole(g, leaf.template), _whole(e, leaf.template), cotangents) for leaf, g, e in rows]


def _whole(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient.detach()
