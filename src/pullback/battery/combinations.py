"""Two settings at once: what is wrong only where a flag and an optional argument, or two flags, meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from torch import Tensor

from .branches import evidence_of
from .evaluate import Evaluator
from .probe import Probe
from .variants import Variant

MOST = 10
EACH = 2


@dataclass(slots=True)
class Pairing:
    """The single settings with which the gradient is right, of which two can be tried together.

    Args:
        probe: The call.
    """

    probe: Probe
    right: list[Variant] = field(default_factory=list)

    def add(self, variant: Variant) -> None:
        """Take a setting that forward and backward took; numbers and axes are no settings, and two of one argument are enough."""
        value = variant.value
        known = value is None or isinstance(value, (bool, str, int, Tensor))
        if known and sum(v.path == variant.path for v in self.right) < EACH:
            self.right.append(variant)

    def pairs(self) -> Iterator[Variant]:
        """Yield the call with two of the settings: first those of a flag and of an argument that is given or left out, ten in all."""
        two = [(a, b) for a, b in combinations(self.right, 2) if a.path != b.path]
        for a, b in sorted(two, key=_of_one_kind)[:MOST]:
            evaluator = _with_both(self.probe, a, b)
            if evaluator is not None:
                yield Variant(
                    a.path,
                    f"{a.name} and {b.name}",
                    evaluator,
                    passed=a.passed and b.passed,
                    guessed=a.guessed or b.guessed,
                    partner=b.path,
                )


def _of_one_kind(pair: tuple[Variant, Variant]) -> bool:
    flags = [isinstance(v.value, (bool, str)) for v in pair]
    return flags[0] == flags[1]


def _with_both(probe: Probe, a: Variant, b: Variant) -> Evaluator | None:
    exact = probe.exact
    values = {a.path: a.value, b.path: b.value}
    passed = {name for name, _ in exact.named}
    wanted = {leaf.path for v in (a, b) for leaf in v.evaluator.wanted}
    base = exact.variant({name: value for name, value in values.items() if name in passed}, wanted=wanted)
    base.nonleaf = a.evaluator.nonleaf or b.evaluator.nonleaf
    rest = [name for name in values if name not in passed]
    if not rest:
        return base
    evidence = evidence_of(probe)
    if evidence is None or exact.kwargs:
        return None
    left = evidence.slots[len(exact.args) :]
    names: Sequence[str] = [slot.name for slot in left]
    if any(name not in names for name in rest):
        return None
    last = max(names.index(name) for name in rest)
    if not all(slot.has_default for slot in left[: last + 1]):
        return None
    further: list[Any] = [values.get(slot.name, slot.default) for slot in left[: last + 1]]
    return base.extended(further).variant(wanted=wanted)
