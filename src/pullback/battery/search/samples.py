"""Further samples from the first: other sizes, one more dimension, flags the other way, None for optional arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from .attempt import Attempt
from .evidence import Evidence, specs_of_kind
from .moment import has_tensors, on_tensors
from .quality import same_results
from .shapes import first_shape
from .specs import Spec, State, growth_within_caps

Resize = Callable[[int], int]
Run = Callable[[State, int], Attempt]


def structural(first: Attempt, evidence: Evidence, run_state: Run, seed: int) -> Attempt | None:
    """Return an attempt of other sizes, and of one more dimension where that runs; None if nothing but the first shapes runs."""
    resized = _resized(first, run_state, seed)
    base = resized or first
    for state in _one_more_dimension(base.state):
        again = run_state(state, seed)
        if _sound(again, run_state, seed):
            return again
    return resized


def _sound(attempt: Attempt, run_state: Run, seed: int) -> bool:
    return attempt.passed and same_results(attempt, run_state(attempt.state, seed)) and run_state(attempt.state, seed + 1).passed


def _resized(first: Attempt, run_state: Run, seed: int) -> Attempt | None:
    for resize, with_numbers, with_bounds in itertools.product((_add_two, _double, _add_one), (False, True), (True, False)):
        state = tuple(_with_sizes(spec, resize, with_numbers, with_bounds) for spec in first.state)
        if state == first.state or not growth_within_caps(first.state, state):
            continue
        again = run_state(state, seed)
        if _sound(again, run_state, seed):
            return again
    return _resized_by_class(first, run_state, seed)


def _resized_by_class(first: Attempt, run_state: Run, seed: int) -> Attempt | None:
    """Some sizes are fixed by constants or modules, so change each class of equal sizes alone and keep what runs."""
    best: Attempt | None = None
    state = first.state
    for size in sorted({s for spec in first.state for s in _sizes(spec)}, reverse=True):
        for with_numbers, with_bounds in itertools.product((False, True), (True, False)):
            changed = tuple(_with_sizes(spec, lambda s, size=size: s + 2 if s == size else s, with_numbers, with_bounds) for spec in state)
            if changed == state or not growth_within_caps(state, changed):
                continue
            again = run_state(changed, seed)
            if _sound(again, run_state, seed):
                best, state = again, changed
                break
    return best


def _add_two(size: int) -> int:
    return size + 2 if size > 1 else size


def _add_one(size: int) -> int:
    return size + 1 if size > 1 else size


def _double(size: int) -> int:
    return 2 * size if size > 1 else size


def _sizes(spec: Spec) -> Iterator[int]:
    if spec.is_tensor:
        yield from spec.shape
    for item in spec.items:
        yield from _sizes(item)


def _with_sizes(spec: Spec, resize: Resize, with_numbers: bool, with_bounds: bool) -> Spec:
    if spec.kind == "index" and with_bounds:
        spec = spec.with_(value=resize(spec.value or 3))
    if spec.is_tensor:
        return spec.with_(shape=tuple(resize(size) for size in spec.shape))
    if spec.items and spec.kind in ("tensors", "star"):
        return spec.with_(items=tuple(_with_sizes(item, resize, with_numbers, with_bounds) for item in spec.items))
    if with_numbers and spec.kind == "int" and spec.value and spec.value > 1:
        return spec.with_(value=resize(spec.value))
    if with_numbers and spec.kind == "ints":
        return spec.with_(value=tuple(resize(v) if v > 1 else v for v in spec.value))
    return spec


def _one_more_dimension(state: State) -> Iterator[State]:
    ranks = [len(shape) for spec in state if (shape := first_shape(spec)) is not None and spec.kind != "index"]
    top = max(ranks, default=0)
    if not 1 <= top <= 4:
        return
    for chosen in (top, None):
        for kinds in (("tensor", "mask", "tensors", "star", "index"), ("tensor", "mask", "tensors", "star")):
            changed = tuple(
                on_tensors(spec, lambda one: one.with_(shape=(2, *one.shape)))
                if spec.kind in kinds and has_tensors(spec) and (chosen is None or len(first_shape(spec) or ()) == chosen)
                else spec
                for spec in state
            )
            if changed != state and growth_within_caps(state, changed):
                yield changed


def variations(first: State, evidence: Evidence) -> Iterator[tuple[int, State]]:
    """Yield (position of the change, state): bools flipped, other string constants, None for optional arguments, tensors for those that were None."""
    for i, (spec, slot) in enumerate(zip(first, evidence.slots, strict=True)):
        trait = evidence.traits[slot.name]
        value = slot.default if spec.kind == "default" else spec.value
        if spec.kind in ("bool", "default") and isinstance(value, bool):
            yield i, _replaced(first, i, Spec("bool", value=not value))
        if spec.kind in ("str", "default") and isinstance(value, str):
            for other in specs_of_kind("str", slot, trait):
                if other.value != value:
                    yield i, _replaced(first, i, other)
        if trait.optional and not slot.star and spec.kind != "omitted":
            if spec.kind == "none" or (spec.kind == "default" and slot.default is None):
                kinds = [kind for kind in trait.kinds() if kind not in ("none", "default") and trait.scores.get(kind, 0.0) > 0.3]
                for other in (s for kind in kinds[:1] for s in specs_of_kind(kind, slot, trait)[:1]):
                    yield i, _replaced(first, i, other)
            else:
                yield i, _replaced(first, i, Spec("none"))


def with_all_gradients(first: State) -> State | None:
    """Return the state in which also those float tensors require grad for which backward always returns None; None if there are none."""
    changed = tuple(spec.with_(grad=True) if spec.kind == "tensor" and not spec.grad else spec for spec in first)
    return changed if changed != first else None


def _replaced(state: State, i: int, spec: Spec) -> State:
    return (*state[:i], spec, *state[i + 1 :])
