"""Make a sample that runs a better one: no needless changes, no size 1, no accidental squares, optional tensors given."""

from __future__ import annotations

from collections.abc import Iterator

from .engine import BudgetSpent, Found, Search
from .evidence import specs_of_kind
from .quality import assess
from .specs import Spec, State, growth_within_caps

REFINE_EVALUATIONS = 25
MOST_TRIES = 12
ROWS = 3


def improved(found: Found, search: Search) -> Found:
    """Return a sample at least as good as `found`, by one kind of change after the other; each must run and not lower the quality."""
    best = found
    try:
        for step in (_without_dead_inputs, _reverted, _fuller, _distinct):
            best = _climb(best, list(step(best, search)), search)
        best = _with_rows(best, search)
        for index in _left_out(best.attempt.state, search):
            best = _given(best, index, search)
    except BudgetSpent:
        pass
    return best


def _climb(best: Found, changes: list[tuple[int, list[Spec]]], search: Search) -> Found:
    """Try, place by place, the specs proposed for it; keep the first that is no worse."""
    for index, specs in changes:
        for spec in specs[:MOST_TRIES]:
            state = _replaced(best.attempt.state, index, spec)
            if state == best.attempt.state or not growth_within_caps(best.attempt.state, state):
                continue
            better = _no_worse(best, state, search)
            if better is not None:
                best = better
                break
    return best


def _no_worse(best: Found, state: State, search: Search) -> Found | None:
    again = search.evaluate(state)
    if not again.passed:
        return None
    quality = assess(again, search.evidence, search.evaluate, search.seed)
    return Found(again, quality) if quality.order >= best.quality.order else None


def _without_dead_inputs(best: Found, search: Search) -> Iterator[tuple[int, list[Spec]]]:
    """Inputs that never get a gradient do not require one; whether they should is for the severed-gradient check."""
    dead = {path for (path, _), gradient in zip(best.attempt.inputs, best.attempt.gradients, strict=True) if gradient is None}
    for slot in search.evidence.slots:
        spec = best.attempt.state[slot.index]
        if slot.name in dead and len(dead) < len(best.attempt.inputs):
            yield slot.index, [spec.with_(grad=False)]
        if slot.star and any(path.startswith(f"{slot.name}[") for path in dead):
            yield slot.index, [spec.with_(items=tuple(s.with_(grad=f"{slot.name}[{i}]" not in dead) for i, s in enumerate(spec.items)))]


def _reverted(best: Found, search: Search) -> Iterator[tuple[int, list[Spec]]]:
    for index, (spec, first) in enumerate(zip(best.attempt.state, search.start, strict=True)):
        if spec == first:
            continue
        options = [first]
        if spec.kind == first.kind == "tensor":
            lower = [spec.with_(shape=spec.shape[-rank:]) for rank in (2, 3) if len(spec.shape) > rank]
            options = [first.with_(grad=spec.grad), *lower, spec.with_(draw=first.draw)]
        yield index, options


def _fuller(best: Found, search: Search) -> Iterator[tuple[int, list[Spec]]]:
    state = best.attempt.state
    sizes = [size for spec in state for size in spec.shape if size > 1]
    for index, spec in enumerate(state):
        if spec.kind != "tensor" or not (1 in spec.shape or not spec.shape):
            continue
        others = [other.shape for other in state if other.is_tensor and other is not spec and 1 not in other.shape and other.shape]
        filled = [tuple(fill if size == 1 else size for size in spec.shape) for fill in dict.fromkeys([*sizes, 3, 4])]
        options = [(3, 4), (4,), *others] if not spec.shape else [*others, *filled]
        yield index, [spec.with_(shape=shape) for shape in dict.fromkeys(options)]


def _distinct(best: Found, search: Search) -> Iterator[tuple[int, list[Spec]]]:
    """A square hides a transposed gradient, so try every size of one alone."""
    used = {size for spec in best.attempt.state for size in spec.shape}
    fresh = next(size for size in (5, 6, 7, 9, 10, 11) if size not in used)
    for index, (spec, slot) in enumerate(zip(best.attempt.state, search.evidence.slots, strict=True)):
        if spec.kind == "tensor" and len(set(spec.shape)) < len(spec.shape) and not search.evidence.traits[slot.name].square:
            yield index, [spec.with_(shape=(*spec.shape[:i], fresh, *spec.shape[i + 1 :])) for i in range(len(spec.shape))]


def _with_rows(best: Found, search: Search) -> Found:
    """Several rows instead of one vector, where the code does not say that it is one: an axis of features is no batch to be resized or emptied."""
    state, traits = best.attempt.state, search.evidence.traits
    vectors = [slot for slot in search.evidence.slots if state[slot.index].kind == "tensor" and len(state[slot.index].shape) == 1]
    if not vectors or any(spec.is_tensor and len(spec.shape) > 1 for spec in state) or any(traits[slot.name].rank == 1 for slot in vectors):
        return best
    for slot in vectors:
        state = _replaced(state, slot.index, state[slot.index].with_(shape=(ROWS, *state[slot.index].shape)))
    return _no_worse(best, state, search) or best


def _left_out(state: State, search: Search) -> list[int]:
    """Optional parameters that were left out although backward has a gradient for them."""
    return [slot.index for slot in search.evidence.slots if _is_none(state[slot.index], slot.default) and search.evidence.traits[slot.name].grad]


def _is_none(spec: Spec, default: object) -> bool:
    return spec.kind == "none" or (spec.kind == "default" and default is None)


def _given(best: Found, index: int, search: Search) -> Found:
    slot = search.evidence.slots[index]
    spec = specs_of_kind("tensor", slot, search.evidence.traits[slot.name])[0]
    inner = refine(_replaced(best.attempt.state, index, spec), index, search)
    return (
        inner
        if inner is not None and len(inner.attempt.inputs) > len(best.attempt.inputs) and inner.quality.order[:3] >= best.quality.order[:3]
        else best
    )


def refine(state: State, index: int, search: Search) -> Found | None:
    """Return a sample found by a short search that starts at `state` and keeps the kind of the argument at `index`."""
    inner = Search(search.evidence, search.seed, search.budget, search.use_messages, pinned=(index, state[index].kind))
    inner.search(state, REFINE_EVALUATIONS)
    return inner.best


def _replaced(state: State, index: int, spec: Spec) -> State:
    return (*state[:index], spec, *state[index + 1 :])
