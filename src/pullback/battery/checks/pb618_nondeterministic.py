"""PB618."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding, Severity
from ..base import Check
from ..contents import other_contents
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..larger import grown
from ..probe import Probe
from ..tensors import copy_tensor, differentiable, random_like, same
from ..unwritten import Unwritten, unwritten_memory
from ..words import gradient_name

REPEATS = 6
ELEMENTS = 1024
SPREAD = (1e-6, 1e-3, 1.0, 1e3, 1e6)


class Nondeterministic(Check):
    """The same inputs and the same random state give different bits, or bits that nobody wrote.

    Why it matters:
        Runs cannot be repeated, and a difference between two runs cannot be told from a fault. Where forward does not repeat, gradients cannot be
        checked.

    How it is measured:
        Six repeats of forward and backward with random states held, at the given inputs and with the rows repeated to a thousand elements where that
        is fast, for grad_outputs of very different size: a changed order of summation shows there first. One more pass runs while torch fills new
        memory with NaN: what comes out as NaN only then is a part of a buffer that was never written (an error in a gradient, since fresh memory is
        often zero and the fault then sleeps; a warning in an output). Index arguments are made to leave rows, segments or experts out there.

    Example:
        Atomic additions; a sum over a set of objects; a random generator that is seeded from the clock; ``grad = torch.empty_like(x)`` of which the
        kernel writes only the rows that some index names.

    Instead:
        Reduce in a fixed order; where speed matters more, say so and honour ``torch.use_deterministic_algorithms``. Start from ``torch.zeros_like``
        what is not written as a whole.

    Limits:
        A kernel whose order changes rarely may repeat six times. Memory that does not come from torch's allocator (numpy, ctypes) is not filled.
    """

    code = "PB618"
    name = "nondeterministic"
    severity = "note"
    needs = ("backward",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        for where, evaluator in _places(probe):
            unwritten = unwritten_memory(probe, evaluator)
            if unwritten:
                yield from (self._unwritten(probe, found, where) for found in unwritten)
                return
        for evaluator, where in (
            (probe.native, "at the given inputs"),
            (grown(probe.native, ELEMENTS), "with the rows repeated"),
        ):
            if evaluator is None:
                continue
            try:
                found = _varies(probe, evaluator)
            except UserCodeError:
                continue
            if found is not None:
                yield self._varies(probe, where, *found)
                return

    def _unwritten(self, probe: Probe, found: Unwritten, where: str) -> Finding:
        gradient = found.kind == "gradient"
        name = probe.backward_name if gradient else probe.target.name
        return self.finding(
            probe,
            f"{name} returns memory that was never written, in {found.name}{where}",
            severity=_severity(probe, gradient),
            location=probe.backward_location if gradient else probe.forward_location,
            evidence=[
                Evidence(
                    f"{found.name}{where} while torch fills new memory with NaN", f"{found.entries} of {found.of} entries are NaN", "the same numbers"
                )
            ],
            cause="a buffer made by torch.empty, new_empty or empty_like is written in part only",
            certain=True,
            fix="Start from zeros (torch.zeros_like, new_zeros), or write every entry.",
            path=found.path if gradient else None,
        )

    def _varies(self, probe: Probe, where: str, what: str, gap: float) -> Finding:
        forward = not what.startswith("grad")
        name = probe.target.name if forward else probe.backward_name
        return self.finding(
            probe,
            f"{name} gives different bits for the same inputs and random state",
            location=probe.forward_location if forward else probe.backward_location,
            evidence=[Evidence(f"{what} in {REPEATS} repeats {where}: they differ by up to {gap:.1e}", got="different", expected="the same bits")],
            cause="an order of summation that changes, or a generator of its own that is not seeded",
            fix="reduce in a fixed order; draw from the global generator or from one that is passed in",
        )


def _severity(probe: Probe, gradient: bool) -> Severity:
    """Whole numbers that were made up may leave out rows or groups that no caller leaves out."""
    made_up = probe.case.origin == "searched" and any(not differentiable(leaf.template) for leaf in probe.native.leaves)
    if gradient and not probe.case.invented and not made_up:
        return "error"
    return "warning" if gradient or not made_up else "note"


def _places(probe: Probe) -> Iterator[tuple[str, Evaluator]]:
    """The call, and the call with indices, counts and offsets that leave something out, where forward and backward take them."""
    yield "", probe.native
    for content in other_contents(probe):
        if differentiable(content.value) or content.contract:
            continue
        evaluator = probe.native.variant({content.path: content.value})
        try:
            outcome = evaluator.forward()
            evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
        except UserCodeError:
            continue
        yield f", at {content.where}", evaluator


def _varies(probe: Probe, evaluator: Evaluator) -> tuple[str, float] | None:
    first: Outcome = evaluator.forward()
    cotangents = [random_like(y, probe.generator, SPREAD) for y in first.live]
    expected = _gradients(evaluator, first, cotangents)
    for _ in range(REPEATS - 1):
        again = evaluator.forward()
        for path, a, b in zip(first.paths, first.outputs, again.outputs, strict=False):
            if not same(a.detach(), b.detach()):
                return path, _gap(a.detach(), b.detach())
        for leaf, a, b in zip(evaluator.wanted, expected, _gradients(evaluator, again, cotangents), strict=True):
            if not same(a, b):
                return gradient_name(leaf.path), _gap(a, b)
    return None


def _gradients(evaluator: Evaluator, outcome: Outcome, cotangents: list[Tensor]) -> list[Tensor | None]:
    return evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])


def _gap(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None or a.shape != b.shape or not a.numel():
        return float("inf")
    return float(torch.nan_to_num((a.to(torch.complex128) - b.to(torch.complex128)).abs(), nan=torch.inf).max())
