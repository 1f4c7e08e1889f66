"""PB509."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...capture.saved import reachable
from ...report.finding import Evidence, Finding, Severity
from ..base import Check, Skipped
from ..branches import given_tensors
from ..dependence import smooth_dependence
from ..evaluate import Evaluator, Leaf, UserCodeError
from ..probe import Probe
from ..tensors import differentiable, same

PARAMETERS = frozenset({"weight", "weights", "w", "bias", "b", "gamma", "beta"})
_WEIGHTS = frozenset({"weight", "weights", "w"})
_LABELS = re.compile(r"target|label|ground_?truth|(^|_)gt(_|$)", re.IGNORECASE)


class SeveredGradient(Check):
    """An input that the output depends on gets no gradient at all.

    Why it matters:
        What feeds that input never trains, and no error says so.

    How it is measured:
        backward returns None for the input, or no output is connected to the graph, although moving the input moves an output smoothly. An
        input that the sample leaves without requires_grad, or at None, but that is named like a parameter (weight, bias, gamma, ...) is tried with
        it as well.

    Example:
        ``return grad_x, None`` for ``forward(ctx, x, weight)``; ``x.detach()`` before the op.

    Instead:
        Return the gradient. For an input that is never differentiated say so: ``static=("target",)`` in the declaration.

    Limits:
        An error only where the caller asked for that gradient (a given tensor requires grad); where the search only guessed that, a note. An
        output marked non-differentiable beside others that are not is a note: it may be meant. A vector of weights beside labels weighs the classes
        of a loss, and is taken for no parameter.
    """

    code = "PB509"
    name = "severed-gradient"
    severity = "error"
    needs = ("repeats",)
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        base = probe.baseline
        if base.backward_error is not None:
            raise Skipped("backward raises")
        if not probe.declaration.exact or probe.declaration.surrogate:
            raise Skipped("declared: the gradient is not the forward's derivative")
        contained = _contained(probe.exact) if probe.target.direct else set()
        wanted = [leaf.path for leaf in probe.exact.wanted if leaf.path not in contained]
        if not base.outcome or not base.outcome.carrying:
            yield from self._disconnected(probe, wanted)
            return
        yield from self._missing(probe, wanted)
        yield from self._frozen(probe)
        yield from self._marked(probe, wanted)

    def _missing(self, probe: Probe, wanted: list[str]) -> Iterator[Finding]:
        verdict = probe.value if probe.nonlinearity is None else probe.value_nonnegative
        for path in wanted:
            found = verdict.inputs[path]
            if not found.none or found.ok is not False or probe.deliberate(path) or probe.explained(path, "PB601", "PB602", "PB611", "PB622"):
                continue
            if not _accumulates(probe, path):
                yield self._severed(probe, path, f"moving {path} moves the output (slope {found.expected:.3g} along a random direction)")

    def _severed(self, probe: Probe, path: str, shown: str) -> Finding:
        fix = f"Return the gradient of {path}; if it is never differentiated, declare static=({path!r},) with a reason."
        return self.finding(
            probe,
            f"{probe.backward_name} returns no gradient for {path}, although forward depends on it",
            severity=_severity(probe, path),
            evidence=[Evidence(shown, got="None", expected=f"a gradient for {path}")],
            cause=f"backward returns None in the place of {path}",
            certain=probe.target.direct,
            fix=fix,
            path=path,
        )

    def _disconnected(self, probe: Probe, wanted: list[str]) -> Iterator[Finding]:
        outcome = probe.baseline.outcome
        if outcome is None or not any(differentiable(y) for y in outcome.outputs):
            raise Skipped("no output is floating point")
        depending = {path: outputs for path in wanted if (outputs := smooth_dependence(probe.exact, path, probe.settings.seed))}
        if not depending:
            return
        path, outputs = next(iter(depending.items()))
        every = ", ".join(depending)
        yield self.finding(
            probe,
            f"no output of {probe.target.name} carries a gradient, although {outputs[0]} depends on {every}",
            severity=_severity(probe, path),
            location=probe.forward_location,
            evidence=[Evidence(f"{outputs[0]} moves when {path} moves", got="requires_grad=False", expected="requires_grad=True")],
            cause="every output is marked non-differentiable, or the graph is cut (detach, no_grad, numpy) before it reaches the Function",
            fix="Mark only outputs that have no derivative as non-differentiable, and hand the tensors themselves to apply.",
            path=path if len(depending) == 1 else None,
        )

    def _frozen(self, probe: Probe) -> Iterator[Finding]:
        """Try inputs that the sample froze but that are named like parameters."""
        if not probe.target.direct or not probe.asked:
            return
        base = probe.exact
        for leaf in base.leaves:
            if leaf.wanted or leaf.path not in PARAMETERS or leaf.path in probe.declaration.static or not differentiable(leaf.template):
                continue
            if _of_classes(base, leaf):
                continue
            if _never_given(probe, base, leaf.path):
                yield self._never(probe, leaf.path, f"with {leaf.path}.requires_grad_()")
        told: set[str] = set()
        for variant in given_tensors(probe, PARAMETERS.difference(probe.declaration.static)):
            leaf = next(leaf for leaf in variant.evaluator.leaves if leaf.path == variant.path)
            if variant.path not in told and not _of_classes(variant.evaluator, leaf) and _never_given(probe, variant.evaluator, variant.path):
                told.add(variant.path)
                yield self._never(probe, variant.path, f"with {variant.name} that requires grad, in the place of None")

    def _never(self, probe: Probe, path: str, shown: str) -> Finding:
        return self.finding(
            probe,
            f"{probe.backward_name} returns no gradient for {path}, although forward depends on it",
            severity="warning",
            evidence=[Evidence(shown, got="None", expected=f"a gradient for {path}")],
            cause=f"backward always returns None in the place of {path}",
            certain=True,
            fix=f"Return the gradient of {path} where it is needed, or declare static=({path!r},) with a reason.",
            path=path,
        )

    def _marked(self, probe: Probe, wanted: list[str]) -> Iterator[Finding]:
        outcome = probe.baseline.outcome
        assert outcome is not None
        silent = [p for i, p in enumerate(outcome.paths) if i not in outcome.carrying and differentiable(outcome.outputs[i])]
        if not silent:
            return
        for path in wanted:
            cut = [p for p in smooth_dependence(probe.exact, path, probe.settings.seed) if p in silent]
            if cut:
                yield self.finding(
                    probe,
                    f"{cut[0]} of {probe.target.name} depends on {path} but carries no gradient",
                    severity="note",
                    location=probe.forward_location,
                    evidence=[Evidence(f"{cut[0]} moves when {path} moves", got="requires_grad=False")],
                    cause="it is marked non-differentiable, or returned through a container that autograd does not look into",
                    fix="Nothing, if it is meant; else do not mark it and return its gradient too.",
                )
                return


def _accumulates(probe: Probe, path: str) -> bool:
    """Whether backward adds to a tensor that hangs on the input (``weight.main_grad``) instead of returning its gradient."""
    index = next(i for i, leaf in enumerate(probe.native.leaves) if leaf.path == path)
    outcome = probe.native.forward()
    tensor = outcome.arguments.tensors[index]
    hanging = [t for _, t in reachable(tensor) if t is not tensor]
    before = [t.detach().clone() for t in hanging]
    probe.native.vjp(outcome, probe.cotangents(outcome))
    return not all(map(same, (t.detach() for t in hanging), before))


def _severity(probe: Probe, path: str) -> Severity:
    if probe.case.invented:
        return "warning" if probe.asked else "note"
    if probe.asked:
        return "error"
    return "warning" if probe.case.origin != "searched" and path in PARAMETERS else "note"


def _of_classes(evaluator: Evaluator, leaf: Leaf) -> bool:
    """Whether a vector of weights stands beside labels: it then weighs the classes or the samples of a loss, and is no parameter."""
    return leaf.path in _WEIGHTS and leaf.template.dim() < 2 and any(_LABELS.search(name) for name, _ in evaluator.named)


def _never_given(probe: Probe, base: Evaluator, path: str) -> bool:
    trial = base.variant(wanted=[*(leaf.path for leaf in base.wanted), path])
    return _gives_none(probe, trial, path) and bool(smooth_dependence(base, path, probe.settings.seed))


def _gives_none(probe: Probe, trial: Evaluator, path: str) -> bool:
    index = next(i for i, leaf in enumerate(trial.wanted) if leaf.path == path)
    try:
        outcome = trial.forward()
        return bool(outcome.carrying) and trial.vjp(outcome, probe.cotangents(outcome))[index] is None
    except UserCodeError:
        return False


def _contained(evaluator: Evaluator) -> set[str]:
    """Return the paths of tensors inside list, dict or dataclass arguments: autograd does not track those, which is PB622's to tell."""
    names = {name for name, _ in evaluator.named}
    return {leaf.path for leaf in evaluator.leaves if leaf.path not in names}
