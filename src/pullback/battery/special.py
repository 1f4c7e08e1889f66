"""Special values: where formulas break though they hold at random points (zeros, ties, bounds, the numbers among the arguments)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import trees
from . import numeric
from .evaluate import Evaluator, UserCodeError

LARGEST_NUMBER = 1e6
NUMBERS = 6
_ASKS_FOR_NEGATIVE = re.compile(r"(<|>=)\s*0\b(?!\.)|(==|!=|>)\s*-\s*1\b(?!\.)")
_EQUALS = re.compile(r"(==|!=)\s*(-\d+|[A-Z_][A-Z0-9_]+)\b(?![.(])")


@dataclass(frozen=True, slots=True)
class Point:
    """One choice of values for a single input.

    Args:
        path: The input.
        name: What is special, in words: ``"some entries exactly lo = -4"``.
        value: The input's value.
        meant: Whether inputs like the sample are sure to take such values; entries of the other sign may never come.
    """

    path: str
    name: str
    value: Tensor
    meant: bool = True


def numbers_among(evaluator: Evaluator) -> dict[str, float]:
    """Return the finite numbers among the arguments by path: ints, floats (not bools) and real tensors of one element that are not differentiated."""
    found: dict[str, float] = {}
    for name, argument in evaluator.named:
        for path, leaf in trees.leaves(argument, name):
            if isinstance(leaf, Tensor):
                small = leaf.numel() == 1 and not leaf.is_complex() and leaf.dtype is not torch.bool and leaf.layout is torch.strided
                value = float(leaf.detach()) if small else None
            else:
                value = float(leaf) if isinstance(leaf, (int, float)) and not isinstance(leaf, bool) else None
            if value is not None and abs(value) <= LARGEST_NUMBER:
                found[path] = value
    return found


def special_points(evaluator: Evaluator) -> Iterator[Point]:
    """Yield special values for every differentiated input of more than no elements, one input at a time.

    Only part of the entries is replaced, so that special and ordinary entries meet; ordinary entries keep the values of the sample. A positive
    definite matrix stays one.
    """
    definite = {leaf.path for leaf in evaluator.wanted if numeric.is_definite(leaf.template)}
    for point in _points(evaluator):
        yield replace(point, value=numeric.made_definite(point.value)) if point.path in definite else point


def _points(evaluator: Evaluator) -> Iterator[Point]:
    numbers = numbers_among(evaluator)
    for leaf in evaluator.wanted:
        x = leaf.template
        if x.numel() == 0:
            continue
        yield Point(leaf.path, "one entry exactly 0", _replaced(x, 0.0, slice(0, 1)))
        yield Point(leaf.path, "every second entry exactly 0", _replaced(x, 0.0, slice(0, None, 2)))
        yield Point(leaf.path, "every entry exactly 0", torch.zeros_like(x))
        if x.numel() > 1 and not x.is_complex():
            yield Point(leaf.path, "equal entries", _replaced(x, float(x.reshape(-1)[0].detach()), slice(0, None, 2)))
            yield Point(leaf.path, "every entry equal", torch.full_like(x, float(x.reshape(-1)[-1].detach())))
            if _of_one_sign(x):
                yield Point(leaf.path, "every second entry's sign turned", _turned(x), meant=False)
        if x.is_complex():
            continue
        if float(x.min()) >= 0 and 0 < float(x.max()) < 1:
            yield Point(leaf.path, "some entries exactly 1", _replaced(x, 1.0, slice(0, None, 3)))
        for path, value in list(numbers.items())[:NUMBERS]:
            if path != leaf.path and value != 0:
                yield Point(leaf.path, f"some entries exactly {path} = {value:g}, some beside it", around(x, value))


def index_points(evaluator: Evaluator, source: str, names: Mapping[str, Any]) -> Iterator[Point]:
    """Yield index arguments in which some entries are -1, as in padded lists, where the code asks for negative ones, or the number it asks for.

    Args:
        evaluator: The call.
        source: The text of forward and backward.
        names: What names in it may stand for.
    """
    told = [int(said) if said[-1].isdigit() else names.get(said) for _, said in _EQUALS.findall(source)]
    asked = [n for n in dict.fromkeys(told) if type(n) is int and n < -1]
    if _ASKS_FOR_NEGATIVE.search(source):
        asked.insert(0, -1)
    for leaf in evaluator.leaves:
        index = leaf.template
        known = index.dtype in (torch.int64, torch.int32) and index.layout is torch.strided and index.dim()
        if known and index.numel() > 1 and int(index.min()) >= 0:
            for number in asked[:2]:
                yield Point(leaf.path, f"some entries exactly {number}", _replaced(index, number, slice(1, None, 3)))


def plain_points(evaluator: Evaluator) -> Iterator[Point]:
    """Yield, for each real differentiated input, zeros and ones among its entries: where powers and logarithms of it are plain numbers."""
    for leaf in evaluator.wanted:
        x = leaf.template
        if x.is_complex() or x.numel() == 0:
            continue
        yield Point(leaf.path, "every second entry exactly 0", _replaced(x, 0.0, slice(0, None, 2)))
        if float(x.min()) >= 0 and float(x.max()) < 1:
            yield Point(leaf.path, "some entries exactly 1", _replaced(x, 1.0, slice(0, None, 3)))


def loses_finiteness(evaluator: Evaluator) -> bool:
    """Whether forward is finite and a gradient is not."""
    try:
        outcome = evaluator.forward()
        if not outcome.carrying or not all(bool(torch.isfinite(y).all()) for y in outcome.live):
            return False
        gradients = evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
    except UserCodeError:
        return False
    return any(g is not None and not bool(torch.isfinite(g).all()) for g in gradients)


def points_beside(evaluator: Evaluator, number: str) -> Iterator[Point]:
    """Yield, for each differentiated input whose range holds the number at path `number`, that input with entries beside it, inside of the range.

    A threshold that was moved shows only where entries lie between its old and its new place.
    """
    value = numbers_among(evaluator).get(number)
    for leaf in evaluator.wanted:
        x = leaf.template
        if not value or x.numel() < 2 or x.is_complex():
            continue
        low, high = float(x.min()), float(x.max())
        if low < value < high:
            yield Point(leaf.path, "entries beside it", around(x, value).clamp(low, high))


def around(x: Tensor, value: float) -> Tensor:
    """Return `x` with its entries replaced in turn by `value`, a step above, itself, and a step below."""
    step = max(abs(value), numeric.scale_of(x)) / 8
    flat = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    for offset, (start, new) in enumerate(((0, value), (2, value + step), (3, value - step))):
        if offset == 0 or flat.numel() > start:
            flat[start::4] = new
    return flat.reshape(x.shape)


def peaked(evaluator: Evaluator, margin: float = 7.0) -> Evaluator | None:
    """Return the call with the entries that an index argument points at lifted above the rest of their rows by `margin`; None without such a pair.

    An index of shape ``[rows...]`` into the last axis of a floating argument ``[rows..., classes]`` is meant, as labels point into logits.
    """
    for index in evaluator.leaves:
        labels = index.template
        if labels.dtype not in (torch.int64, torch.int32) or labels.numel() == 0 or labels.layout is not torch.strided:
            continue
        for leaf in evaluator.wanted:
            x = leaf.template
            rows = x.shape[:-1] if x.dim() else ()
            if not x.dim() or x.is_complex() or torch.Size(rows).numel() != labels.numel() or not x.shape[-1] > 1:
                continue
            flat = labels.reshape(-1, 1).to(torch.int64)
            inside = (flat >= 0) & (flat < x.shape[-1])
            raised = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1, x.shape[-1])
            top = raised.amax(-1, keepdim=True) + margin
            at = flat.clamp(0, x.shape[-1] - 1)
            raised.scatter_(1, at, torch.where(inside, top, raised.gather(1, at)))
            new = evaluator.variant({leaf.path: raised.reshape(x.shape)})
            new.hold_everything = evaluator.hold_everything
            return new
    return None


def _of_one_sign(x: Tensor) -> bool:
    entries = x.detach()
    return bool((entries > 0).all() or (entries < 0).all()) and not bool((entries == entries.round()).all())


def _replaced(x: Tensor, value: float, where: slice) -> Tensor:
    flat = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    flat[where] = value
    return flat.reshape(x.shape)


def _turned(x: Tensor) -> Tensor:
    flat = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    flat[::2] *= -1
    return flat.reshape(x.shape)
