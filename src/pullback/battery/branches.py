"""Other settings that forward or backward branch on: words among the arguments, and parameters that were left at their default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .deliberate import deliberate_inputs
from .edges import Edge
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .search.syntax import FunctionSource, Unsearchable, read_function
from .search.traits import Trait
from .search.uses import collect_uses
from .variants import Variant

CHOICES = 4
_INFERENCE = re.compile(
    r"(^|_)(train|training|inference|infer|eval|test|grad|save|debug|verbose|inplace|check|validate|deterministic)(_|$)", re.IGNORECASE
)


def other_settings(probe: Probe) -> Iterator[Variant]:
    """Yield the call with other words where the code compares a word, and with the parameters left at a default that the code branches on."""
    source = _source(probe)
    if source is None or any(slot.star for slot in source.slots):
        return
    traits = {slot.name: Trait() for slot in source.slots}
    try:
        collect_uses(source, traits)
    except (RecursionError, AttributeError):
        return
    exact = probe.exact
    for name, value in exact.named:
        if isinstance(value, str) and name in traits:
            for other in _others(traits[name], value):
                yield Variant(name, f"{name}={other!r}", exact.variant({name: other}))
    if exact.kwargs:
        return
    passed = len(exact.args)
    for slot in source.slots[passed:]:
        values = _others(traits[slot.name], slot.default) if slot.has_default and not _INFERENCE.search(slot.name) else []
        before = [s.default for s in source.slots[passed : slot.index]]
        if values and all(s.has_default for s in source.slots[passed : slot.index]) and _runs(exact.extended([*before, slot.default])):
            for other in values:
                yield Variant(slot.name, f"{slot.name}={other!r}", exact.extended([*before, other]), passed=False)


def excused(probe: Probe, variant: Variant, edge: Edge) -> bool:
    """Whether a setting makes the Function a surrogate (hard sampling, rounding), which it is not as in the sample."""
    path = edge.verdict.path
    if not deliberate_inputs(variant.evaluator, [edge.verdict], probe.settings.seed):
        return False
    return not deliberate_inputs(probe.exact, [v for v in probe.value.inputs.values() if v.path == path], probe.settings.seed)


def _source(probe: Probe) -> FunctionSource | None:
    function = probe.target.function if probe.target.direct else None
    try:
        return None if function is None else read_function(function)
    except (Unsearchable, OSError, TypeError, AttributeError):
        return None


def _others(trait: Trait, value: Any) -> list[Any]:
    """Return other values of a bool, word or whole number that the code asks about."""
    if not trait.steering or not isinstance(value, (bool, str, int)):
        return []
    if isinstance(value, bool):
        return [not value]
    return [c for c in trait.constants if type(c) is type(value) and c != value][:CHOICES]


def _runs(evaluator: Evaluator) -> bool:
    """Whether the default may be passed by hand: a backward that counts its gradients without it is another matter."""
    try:
        outcome = evaluator.forward()
        evaluator.vjp(outcome, [y.detach().clone() for y in outcome.live])
    except UserCodeError:
        return False
    return bool(outcome.carrying)
