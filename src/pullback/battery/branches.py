"""Other settings that forward or backward branch on: words among the arguments, and parameters that were left at their default."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Any

from torch import Tensor

from .deliberate import OnPurpose, deliberate_inputs, hands_on
from .edges import Edge
from .evaluate import Evaluator, UserCodeError
from .filled import in_place_of_none, next_count, other_defaults, other_float, shown, tells_cases_apart
from .probe import Probe
from .search.evidence import Evidence, gather_evidence
from .search.specs import Slot
from .search.syntax import FunctionSource, Unsearchable, read_function
from .search.traits import Trait
from .tensors import differentiable
from .variants import Variant, in_place, limited, optional_arguments

CHOICES = 4
NUMBER = 0.7
"""What a factor may be."""
COARSE = 1e-3
PIECES = (2, 3, 1)
_CUT = re.compile(r"chunk|block|tile|split|piece|parts?$|micro_?batch", re.IGNORECASE)
_INFERENCE = re.compile(r"(^|_)(train|training|inference|infer|eval|test|grad|save|debug|verbose|check|validate|deterministic)(_|$)", re.IGNORECASE)


def other_settings(probe: Probe) -> Iterator[Variant]:
    """Yield the call with other words or codes where the code compares one, and with parameters left at a default or None that the code knows."""
    evidence = evidence_of(probe)
    if evidence is None or any(slot.star for slot in evidence.slots):
        return
    exact = probe.exact
    for name, value in exact.named:
        if name in evidence.traits and (isinstance(value, (str, float)) or tells_cases_apart(evidence.traits[name], value)):
            for other in _others(evidence.traits[name], value, name):
                yield Variant(name, f"{name}={other!r}", exact.variant({name: other}))
    if not exact.kwargs:
        yield from _left_at_default(probe, evidence)
    yield from _left_at_none(probe, evidence)


def _left_at_default(probe: Probe, evidence: Evidence) -> Iterator[Variant]:
    for slot, before in _left_out(probe, evidence):
        trait = evidence.traits[slot.name]
        values = [*_others(trait, slot.default, slot.name), *other_defaults(slot), *other_float(slot, evidence), *limited(slot.default)]
        if values and _runs(probe.exact.extended([*before, slot.default])):
            for other in dict.fromkeys(values):
                evaluator = probe.exact.extended([*before, other])
                evaluator.nonleaf = evaluator.nonleaf or in_place(slot.name)
                yield Variant(slot.name, f"{slot.name}={other!r}", evaluator, passed=False)


def next_counts(probe: Probe) -> Iterator[Variant]:
    """Yield the call with the next whole number for each parameter that the sample leaves at a whole number."""
    evidence = evidence_of(probe)
    if evidence is None or probe.exact.kwargs:
        return
    for slot, before in left_out(probe):
        for other in next_count(slot, evidence):
            if _runs(probe.exact.extended([*before, slot.default])):
                yield Variant(slot.name, f"{slot.name}={other}", probe.exact.extended([*before, other]), passed=False)


def defaults_set(probe: Probe) -> Iterator[Variant]:
    """Yield the call with both neighbours of each whole number that is left at its default.

    Unlike `next_counts` it leaves none out by its name or use: against a declared surrogate every setting can be judged.
    """
    if probe.exact.kwargs:
        return
    for slot, before in left_out(probe):
        if type(slot.default) is int:
            for n in (slot.default + 1, slot.default - 1):
                yield Variant(slot.name, f"{slot.name}={n}", probe.exact.extended([*before, n]), passed=False)


def given_tensors(probe: Probe, names: Container[str]) -> Iterator[Variant]:
    """Yield the call with a tensor for each argument of these names that is None in the sample."""
    evidence = evidence_of(probe)
    if evidence is None or not any(slot.name in names for slot in evidence.slots) or any(slot.star for slot in evidence.slots):
        return
    for variant in _left_at_none(probe, evidence):
        if variant.path in names and any(leaf.path == variant.path and differentiable(leaf.template) for leaf in variant.evaluator.leaves):
            yield variant


def _left_at_none(probe: Probe, evidence: Evidence) -> Iterator[Variant]:
    exact, slots = probe.exact, {slot.name: slot for slot in evidence.slots}
    places: list[tuple[Slot, list[Any] | None]] = [(slots[name], None) for name, value in exact.named if value is None and name in slots]
    if not exact.kwargs:
        places += [(slot, before) for slot, before in _left_out(probe, evidence) if slot.default is None and _runs(exact.extended([*before, None]))]
    optional = optional_arguments(probe)
    for slot, before in places:
        if slot.name in optional or evidence.traits[slot.name].optional:
            for value, evaluator in in_place_of_none(exact, slot, evidence, before):
                if isinstance(value, Tensor) and differentiable(value) and evidence.traits[slot.name].grad is not False:
                    evaluator = evaluator.variant(wanted={slot.name, *(leaf.path for leaf in evaluator.wanted)})
                yield Variant(slot.name, f"{slot.name}={shown(value)}", evaluator, passed=False, guessed=True)


def numbers_for_none(probe: Probe) -> Iterator[Variant]:
    """Yield the call with a number for each None that gets no gradient, whatever forward makes of it: it may be meant for backward alone."""
    evidence = evidence_of(probe)
    if evidence is None or any(slot.star for slot in evidence.slots):
        return
    exact, optional = probe.exact, optional_arguments(probe)
    calls = [(name, exact.variant({name: NUMBER})) for name, value in exact.named if value is None]
    if not exact.kwargs:
        calls += [(slot.name, exact.extended([*before, NUMBER])) for slot, before in left_out(probe) if slot.default is None]
    for name, evaluator in calls:
        if name in optional and name in evidence.traits and evidence.traits[name].grad is False:
            yield Variant(name, f"{name}={NUMBER}", evaluator, guessed=True)


def _left_out(probe: Probe, evidence: Evidence) -> Iterator[tuple[Slot, list[Any]]]:
    """Yield the parameters that the sample leaves at their default, each with the defaults of those before it."""
    left = evidence.slots[len(probe.exact.args) :]
    for i, slot in enumerate(left):
        if all(s.has_default for s in left[: i + 1]) and not _INFERENCE.search(slot.name):
            yield slot, [s.default for s in left[:i]]


def other_cuts(probe: Probe) -> Iterator[Variant]:
    """Yield the call with other whole numbers where a name says that they only cut the work in pieces (chunks, blocks, tiles)."""
    exact = probe.exact
    for name, value in exact.named:
        if isinstance(value, int) and not isinstance(value, bool) and _CUT.search(name):
            yield from (Variant(name, f"{name}={n}", exact.variant({name: n})) for n in PIECES if n != value)
    evidence = evidence_of(probe)
    if evidence is None or exact.kwargs or any(slot.star for slot in evidence.slots):
        return
    for slot, before in _left_out(probe, evidence):
        if isinstance(slot.default, int) and not isinstance(slot.default, bool) and _CUT.search(slot.name):
            values = [n for n in PIECES if n != slot.default]
            yield from (Variant(slot.name, f"{slot.name}={n}", exact.extended([*before, n]), passed=False) for n in values)


def left_out(probe: Probe) -> Iterator[tuple[Slot, list[Any]]]:
    """Yield the parameters that the sample leaves at their default, each with the defaults of those before it."""
    evidence = evidence_of(probe)
    if evidence is not None and not any(slot.star for slot in evidence.slots):
        yield from _left_out(probe, evidence)


def switches_off(variant: Variant, edge: Edge) -> bool:
    """Whether a flag makes forward hand its input on as it is (dropout in evaluation): then the gradient has to be handed on too."""
    return isinstance(variant.value, bool) and hands_on(variant.evaluator, edge.verdict.path)


def excused(probe: Probe, evaluator: Evaluator, edge: Edge) -> bool:
    """Whether a setting makes the Function a surrogate (hard sampling, rounding), which it is not as in the sample.

    What shows at the sample only coarsely may be one there too; and where forward returns its input, or never looks at what backward uses, a
    setting only says how much the gradient is changed.
    """
    path = edge.verdict.path
    why = _why_deliberate(probe, evaluator, edge)
    if not why:
        return False
    return blurred(probe, path) or isinstance(why, OnPurpose) or not _deliberate_at_sample(probe, path)


def on_purpose(probe: Probe, evaluator: Evaluator, edge: Edge) -> bool:
    """Whether a number says how much a gradient is changed, since forward returns its input, or never looks at what backward uses."""
    return isinstance(_why_deliberate(probe, evaluator, edge), OnPurpose)


def _why_deliberate(probe: Probe, evaluator: Evaluator, edge: Edge) -> str:
    return deliberate_inputs(evaluator, [edge.verdict], probe.settings.seed).get(edge.verdict.path, "")


def blurred(probe: Probe, path: str) -> bool:
    """Whether the gradient of an input could be much wrong at the sample without that being seen, as behind half precision."""
    return probe.value.inputs[path].unseen > COARSE


def surrogate_unseen(probe: Probe, path: str) -> bool:
    """Whether an input's gradient looks right only since it shows coarsely: it is a surrogate's."""
    return blurred(probe, path) and _deliberate_at_sample(probe, path)


def _deliberate_at_sample(probe: Probe, path: str) -> bool:
    return bool(deliberate_inputs(probe.exact, [v for v in probe.value.inputs.values() if v.path == path], probe.settings.seed))


def _source(probe: Probe) -> FunctionSource | None:
    function = probe.target.described
    try:
        return None if function is None else read_function(function)
    except (Unsearchable, OSError, TypeError, AttributeError):
        return None


def evidence_of(probe: Probe) -> Evidence | None:
    """Return what the code of the Function says about its parameters; None where it cannot be read."""
    source = _source(probe)
    try:
        return None if source is None else gather_evidence(source)
    except (Unsearchable, RecursionError, AttributeError, TypeError, ValueError):
        return None


def _others(trait: Trait, value: Any, name: str) -> list[Any]:
    """Return other values of a bool, word or number that the code asks about; of a reduction also "none", which is often what is left."""
    if not trait.steering or not isinstance(value, (bool, str, int, float)):
        return []
    if isinstance(value, float):
        told_apart = [float(c) for c in trait.constants if isinstance(c, (int, float)) and not isinstance(c, bool)]
        return [c for c in dict.fromkeys(told_apart) if c != value][:CHOICES]
    if isinstance(value, bool):
        return [not value]
    named = [c for c in trait.constants if type(c) is type(value) and c != value][:CHOICES]
    rest = ["none"] if name == "reduction" and {"mean", "sum"} & {value, *named} and "none" not in (value, *named) else []
    return [*named, *rest]


def asks_about(probe: Probe, name: str, value: float) -> bool:
    """Whether the code compares a number among the arguments with this very value, as in ``if p > 0``."""
    evidence = evidence_of(probe)
    return evidence is not None and name in evidence.traits and value in evidence.traits[name].constants


def asks_for(probe: Probe, name: str, there: Evaluator) -> bool:
    """Whether the code compares a whole number with the very value that it has in another call: a case of its own, not a place that is passed by."""
    value = dict(there.named)[name]
    return type(value) is int and asks_about(probe, name, value)


def _runs(evaluator: Evaluator) -> bool:
    """Whether the default may be passed by hand: a backward that counts its gradients without it is another matter."""
    try:
        outcome = evaluator.forward()
        evaluator.vjp(outcome, [y.detach().clone() for y in outcome.live])
    except UserCodeError:
        return False
    return bool(outcome.carrying)
