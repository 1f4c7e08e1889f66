"""A failed attempt with what is known about it: the ground on which the next states are proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .attempt import Attempt
from .evidence import Evidence, specs_of_kind
from .specs import Slot, Spec
from .traits import Trait

Change = dict[str, Spec]


@dataclass(slots=True)
class Moment:
    """One failed attempt.

    Args:
        attempt: What happened.
        evidence: What is known statically.
        blamed: Parameters that the failing expression depends on, nearest first; empty if unknown.
    """

    attempt: Attempt
    evidence: Evidence
    blamed: Sequence[str]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Parameters of forward."""
        return self.evidence.slots

    def spec(self, name: str) -> Spec:
        """Return what was passed for a parameter."""
        return self.attempt.state[self.slot(name).index]

    def slot(self, name: str) -> Slot:
        """Return the parameter of that name."""
        return next(slot for slot in self.slots if slot.name == name)

    def trait(self, name: str) -> Trait:
        """Return the evidence for a parameter."""
        return self.evidence.traits[name]

    @property
    def suspects(self) -> list[str]:
        """The blamed parameters; all of them if nobody is blamed."""
        return list(self.blamed) or [slot.name for slot in self.slots]

    def tensors(self, names: Sequence[str] | None = None) -> list[str]:
        """Return those of the suspects for which tensors, or lists of them, were passed."""
        wanted = self.suspects if names is None else names
        found = [name for name in wanted if has_tensors(self.spec(name))]
        return found or [slot.name for slot in self.slots if has_tensors(self.spec(slot.name))]

    def others(self, name: str) -> Iterator[tuple[int, ...]]:
        """Yield the shapes passed for the other parameters, blamed ones first."""
        rest = [s.name for s in self.slots if s.name not in self.blamed]
        for other in (*self.blamed, *rest):
            spec = self.spec(other)
            if other != name and spec.is_tensor:
                yield spec.shape

    def kind_change(self, name: str, kind: str) -> Iterator[Change]:
        """Yield the likeliest specs of one kind for a parameter."""
        slot, trait = self.slot(name), self.trait(name)
        if slot.star or trait.refused:
            return
        for spec in specs_of_kind(kind, slot, trait)[:3]:
            yield {name: spec}

    def next_kinds(self, name: str) -> list[Spec]:
        """Return the first spec of every other kind for a parameter, likeliest first."""
        now = self.spec(name)
        return [spec for spec in self.evidence.first_specs(self.slot(name)) if spec.kind != now.kind or self.slot(name).star]


def has_tensors(spec: Spec) -> bool:
    """Return whether `spec` passes a tensor or a list of them."""
    return spec.is_tensor or (spec.kind in ("tensors", "star") and any(has_tensors(item) for item in spec.items))


def on_tensors(spec: Spec, change: Callable[[Spec], Spec]) -> Spec:
    """Return `spec` with every tensor in it changed."""
    if spec.is_tensor:
        return change(spec)
    return spec.with_(items=tuple(on_tensors(item, change) for item in spec.items)) if spec.items else spec
