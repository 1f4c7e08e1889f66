"""The same call with what its sample leaves out: a number, a word or a tensor in the place of None, another number than the default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .evaluate import Evaluator, UserCodeError
from .search.evidence import Evidence, float_values, specs_of_kind
from .search.specs import Slot, Spec, build
from .search.traits import Trait
from .tensors import differentiable
from .variants import POSITION, STEPS

KINDS = ("float", "int", "str", "mask", "tensor", "bool")
"""What may be put in the place of None; index tensors, groups, objects and callables belong to contents that nobody can guess."""
TRIED = 3
SHAPES = 9
VECTORS = 5
SEED = 0xF111
_COUNT = re.compile(r"(^|_)(groups?|chunks?|heads?|parts?|blocks?|splits?|repeats?|n|num|steps?)(_|$)", re.IGNORECASE)
_PLACE = re.compile(r"(^|_)(out|output|group|pg|generator|seed|stream|device|dtype|cache|buffer)$", re.IGNORECASE)


def other_defaults(slot: Slot) -> list[Any]:
    """Return other values of a number or flag that a parameter has by default: a float that is not neutral, the other flag, small counts."""
    value = slot.default
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [n for n in (2, 3) if n != value] if _COUNT.search(slot.name) and not STEPS.search(slot.name) and value > 0 else []
    return []


def next_count(slot: Slot, evidence: Evidence) -> list[int]:
    """Return the whole number after a parameter's default: for what is counted or measured, not for what points at an entry or tells cases apart.

    An approximation of one more step or term only gets better.
    """
    value = slot.default
    if type(value) is not int or POSITION.search(slot.name) or _PLACE.search(slot.name) or tells_cases_apart(evidence.traits[slot.name], value):
        return []
    return [n for n in (value + 1,) if n not in other_defaults(slot)]


def tells_cases_apart(trait: Trait, value: Any) -> bool:
    """Whether a whole number only tells cases apart: the code compares the argument with it and with other whole numbers."""
    numbers = [c for c in trait.constants if isinstance(c, int) and not isinstance(c, bool)]
    return isinstance(value, int) and not isinstance(value, bool) and value in numbers and len(numbers) > 1


def other_float(slot: Slot, evidence: Evidence) -> list[float]:
    """Return lively numbers for a parameter that is a float by default: one near the default, unless that is 0 or 1, and one far from it.

    A domain may be narrow: an exponent, say, that must exceed 1.
    """
    if not isinstance(slot.default, float) or _PLACE.search(slot.name):
        return []
    lively = [v for v in float_values(evidence.traits[slot.name]) if v != slot.default and v not in (0.0, 1.0, -1.0)][:1]
    return lively if slot.default in (0.0, 1.0, -1.0) else [1.25 * slot.default, *lively]


def in_place_of_none(evaluator: Evaluator, slot: Slot, evidence: Evidence, before: Sequence[Any] | None) -> Iterator[tuple[Any, Evaluator]]:
    """Yield the call with a value for an argument that is None, one for each likely kind, where forward takes it and returns something else for it.

    Args:
        evaluator: The call, with None for the argument, or without it.
        slot: The parameter.
        evidence: What the code says about its kind.
        before: Values of the parameters left out before it; None where the argument is passed.
    """
    trait = evidence.traits[slot.name]
    if trait.refused or _PLACE.search(slot.name):
        return
    likely = [kind for kind in trait.kinds() if trait.scores.get(kind, 0.0) > 0 and kind != "default" and kind != "none"]
    # `scale or default` speaks of a number as much as of a bool, and None is no third value of a flag.
    for kind in list(dict.fromkeys("float" if k == "bool" else k for k in likely if k in KINDS))[:TRIED]:
        for value in _values(kind, slot, evidence, evaluator):
            new = evaluator.variant({slot.name: value}) if before is None else evaluator.extended([*before, value])
            if (_matters if isinstance(value, Tensor) else _differs)(evaluator, new):
                yield value, new
                break


def shown(value: Any) -> str:
    """Return how messages write a value: ``0.7``, ``float64[4]``."""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _values(kind: str, slot: Slot, evidence: Evidence, evaluator: Evaluator) -> list[Any]:
    specs = specs_of_kind(kind, slot, evidence.traits[slot.name])
    if kind not in ("tensor", "mask"):
        return [build(spec, slot, SEED) for spec in specs[:2]]
    return [_made(spec.with_(shape=shape, grad=False), slot, evaluator) for spec in specs[:1] for shape in _shapes(evaluator)]


def _made(spec: Spec, slot: Slot, evaluator: Evaluator) -> Tensor:
    value = build(spec, slot, SEED)
    dtype = next((leaf.template.dtype for leaf in evaluator.wanted if not leaf.template.is_complex()), torch.float64)
    return value.to(dtype) if value.is_floating_point() else value


def _shapes(evaluator: Evaluator) -> list[tuple[int, ...]]:
    """Return the shapes that an optional tensor usually has: of the last axis, the rows, the channels, of an output, of an argument."""
    try:
        outputs = [tuple(y.shape) for y in evaluator.forward().outputs if differentiable(y)]
    except UserCodeError:
        return []
    whole = [*outputs, *(tuple(leaf.template.shape) for leaf in evaluator.leaves)]
    vectors = list(dict.fromkeys(part for s in whole if s for part in (s[-1:], s[:1], s[1:2]) if part))
    columns = [(*s[:-1], 1) for s in whole if len(s) > 1]
    return list(dict.fromkeys([*vectors[:VECTORS], *columns[:2], *whole]))[:SHAPES]


def _matters(base: Evaluator, new: Evaluator) -> bool:
    """Whether forward takes the value, returns outputs of the same shapes for it, and other values."""
    try:
        shapes = [y.shape for y in base.values()] == [y.shape for y in new.values()]
    except UserCodeError:
        return False
    return shapes and _differs(base, new)


def _differs(base: Evaluator, new: Evaluator) -> bool:
    """Whether forward takes the value and returns something else for it, all of it finite: a number may well say how large an output is."""
    try:
        before, after = base.values(), new.values()
    except UserCodeError:
        return False
    same = len(before) == len(after) and all(map(torch.equal, before, after))
    return not same and bool(after) and all(y.numel() > 0 and bool(torch.isfinite(y).all()) for y in after)
