"""PB606."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from ...report.finding import Evidence, Finding
from ..base import Check
from ..compare import Gap, gradient_scales, largest_gap
from ..evaluate import Evaluator, Outcome, UserCodeError
from ..probe import Probe
from ..refusals import refuses
from ..tensors import copy_tensor, differentiable
from ..words import gradient_name

LIMIT = 8
"""How many inputs are frozen in turn; modules with many parameters stop there."""


@dataclass(frozen=True, slots=True)
class Subset:
    """A choice of the inputs that require grad: their paths, and how messages say it."""

    paths: tuple[str, ...]
    said: str


@dataclass(frozen=True, slots=True)
class Whole:
    """The call in which all inputs require grad: its outcome, the cotangent of each of its outputs by path, and the gradients."""

    evaluator: Evaluator
    outcome: Outcome
    cotangents: dict[str, Tensor]
    gradients: Sequence[Tensor | None]


class RequiresGradSubset(Check):
    """The op crashes, or a gradient is lost or wrong, when only some of its inputs require grad.

    Why it matters:
        Fine-tuning freezes weights, evaluation runs under no_grad, and the first layer's input needs no gradient. Branches on needs_input_grad or
        requires_grad that were written for all inputs at once then leave variables unbound, return early, or return gradients in the wrong place.

    How it is measured:
        Each differentiated input is frozen in turn, then each alone is left to require grad, then none is, with and without no_grad. Outputs and
        the remaining gradients must be those of the full call. An input that does not require grad in the sample, though backward would give it a
        gradient, is let alone require it too (a warning).

    Example:
        ``if ctx.needs_input_grad[0]: grad_x = ...`` without ``grad_x = None`` before; ``if x.requires_grad:`` in forward around what grad_w needs.

    Instead:
        ``grad_x = grad_w = None`` first; one ``if ctx.needs_input_grad[i]`` for each argument; ``any(ctx.needs_input_grad)`` for early returns.
    """

    code = "PB606"
    name = "requires-grad-subset"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        whole = _whole(probe, probe.exact)
        seen: set[str] = set()
        for subset in _subsets([leaf.path for leaf in probe.exact.wanted]):
            found = self._tried(probe, subset, whole)
            if found is not None and found.message not in seen:
                seen.add(found.message)
                yield found
                if len(seen) == 2:
                    return
        if not seen:
            yield from islice(self._of_others(probe), 1)

    def _of_others(self, probe: Probe) -> Iterator[Finding]:
        """Let each input alone require grad that does not in the sample, if backward gives it a gradient when all do."""
        paths = [leaf.path for leaf in probe.exact.wanted]
        others = [leaf.path for leaf in probe.exact.leaves if not leaf.wanted and differentiable(leaf.template) and leaf.template.numel() > 1]
        for path in [p for p in others if p.partition(".")[0] not in probe.declaration.static][:LIMIT]:
            try:
                whole = _whole(probe, probe.exact.variant(wanted=[*paths, path]))
            except UserCodeError:
                continue
            if next(g for leaf, g in zip(whole.evaluator.wanted, whole.gradients, strict=True) if leaf.path == path) is not None:
                found = self._tried(probe, Subset((path,), f"only {path} requires grad"), whole)
                if found is not None:
                    yield replace(found, severity="warning")

    def _tried(self, probe: Probe, subset: Subset, whole: Whole) -> Finding | None:
        evaluator, base, cotangents, expected = whole.evaluator, whole.outcome, whole.cotangents, whole.gradients
        try:
            outcome = evaluator.forward(requires_grad=subset.paths)
            if not subset.paths:
                with torch.no_grad():
                    evaluator.forward(requires_grad=[leaf.path for leaf in evaluator.wanted])
        except UserCodeError as error:
            return None if refuses(error) else self._crash(probe, subset, error)
        if base.outputs and not outcome.outputs:
            return self._no_output(probe, subset)
        changed = largest_gap(base.paths, outcome.outputs, base.outputs) if outcome.paths == base.paths else None
        if changed is not None and not probe.repeats.forward_draws:
            return self._other_output(probe, subset, changed)
        if not outcome.carrying:
            return None
        chosen = [cotangents.get(outcome.paths[i]) for i in outcome.carrying]
        try:
            got = evaluator.vjp(outcome, [None if c is None else copy_tensor(c) for c in chosen])
        except UserCodeError as error:
            return None if refuses(error) else self._crash(probe, subset, error)
        if probe.repeats.backward_draws:
            return None
        kept = [i for i, leaf in enumerate(evaluator.wanted) if leaf.path in subset.paths and expected[i] is not None]
        paths = [evaluator.wanted[i].path for i in kept]
        gap = largest_gap(paths, [got[i] for i in kept], [expected[i] for i in kept], gradient_scales(probe)) if kept else None
        return None if gap is None else self._wrong(probe, subset, gap)

    def _crash(self, probe: Probe, subset: Subset, error: UserCodeError) -> Finding:
        forward = error.stage == "forward"
        unbound = isinstance(error.error, UnboundLocalError)
        cause = "a variable is set only where another input needs a gradient" if unbound else "a branch on what needs gradients leaves something out"
        return self.finding(
            probe,
            f"{'forward of ' + probe.target.name if forward else probe.backward_name} raises when {subset.said}",
            location=probe.forward_location if forward else None,
            evidence=[Evidence(f"{error.stage} when {subset.said}", error.short, "no error, as when all inputs require grad")],
            cause=cause,
            certain=unbound,
            fix="Leave nothing undefined that is used later: forward computes its result whatever requires grad."
            if forward
            else "Set every gradient to None first, then compute each under its own ctx.needs_input_grad[i].",
        )

    def _wrong(self, probe: Probe, subset: Subset, gap: Gap) -> Finding:
        name = gradient_name(gap.path)
        return self.finding(
            probe,
            f"{probe.backward_name} {'drops' if gap.got == 'None' else 'changes'} {name} when {subset.said}",
            evidence=[gap.evidence(f"{name} when {subset.said}, against all inputs")],
            attachments=gap.picture(),
            cause="a branch looks at the wrong entry of needs_input_grad, or at another input's requires_grad",
            fix=f"Compute {name} wherever the entry of {gap.path} in ctx.needs_input_grad is true, whatever the other inputs need.",
            path=gap.path,
        )

    def _no_output(self, probe: Probe, subset: Subset) -> Finding:
        return self.finding(
            probe,
            f"forward of {probe.target.name} returns no tensor when {subset.said}",
            location=probe.forward_location,
            evidence=[Evidence(f"what forward returns when {subset.said}", "None", "a tensor, as when all inputs require grad")],
            cause="the return stands under a test of requires_grad or needs_input_grad",
            certain=True,
            fix="Branch only around what backward needs, never around the result.",
        )

    def _other_output(self, probe: Probe, subset: Subset, gap: Gap) -> Finding:
        return self.finding(
            probe,
            f"forward of {probe.target.name} returns another {gap.path} when {subset.said}",
            location=probe.forward_location,
            evidence=[gap.evidence(f"{gap.path} when {subset.said}")],
            attachments=gap.picture(gap.path),
            cause="forward branches on requires_grad or needs_input_grad",
            fix="Branch only around what backward needs, never around the result.",
        )


def _whole(probe: Probe, evaluator: Evaluator) -> Whole:
    outcome = evaluator.forward()
    cotangents = dict(zip([outcome.paths[i] for i in outcome.carrying], probe.cotangents(outcome), strict=True))
    return Whole(evaluator, outcome, cotangents, evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents.values()]))


def _subsets(paths: list[str]) -> Iterator[Subset]:
    if len(paths) > 1:
        for path in paths[:LIMIT]:
            yield Subset(tuple(p for p in paths if p != path), f"{path} does not require grad")
    if len(paths) > 2:
        for path in paths[:LIMIT]:
            yield Subset((path,), f"only {path} requires grad")
    yield Subset((), "no input requires grad")
