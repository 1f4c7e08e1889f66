"""Settings that forward takes only together with other shapes: another axis, two groups, a norm over one more axis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .branches import left_out
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .sizes import main_leaf, resizable_leaves
from .variants import Variant

_AXIS = re.compile(r"(^|_)(dim|axis)$", re.IGNORECASE)
_GROUPS = re.compile(r"(^|_)groups?$", re.IGNORECASE)


def joined_settings(probe: Probe) -> Iterator[Variant]:
    """Yield the call with another setting and with the shapes that go with it, as far as forward runs.

    An axis changes places with its neighbour in every tensor that has as many axes as the largest one, or becomes as long as it, which hides that
    sizes are taken of the wrong one; two groups need half the channels per group; a tuple of the last sizes of the largest argument gets one size
    more, and so do the tensors of that shape.
    """
    for name, value, passed, before in _settings(probe):
        for other, tensors in _changes(probe.exact, name, value):
            moved = probe.exact.variant({**tensors, **({name: other} if passed else {})})
            evaluator = moved if passed else moved.extended([*before, other])
            if _runs(evaluator):
                shapes = ", ".join(f"{path} of shape {tuple(t.shape)}" for path, t in tensors.items())
                yield Variant(name, f"{name}={other!r} and {shapes}", evaluator, passed=passed)


def _settings(probe: Probe) -> Iterator[tuple[str, Any, bool, list[Any]]]:
    """Yield name, value, whether the sample passes it, and else the defaults of the parameters left out before it."""
    for name, value in probe.exact.named:
        yield name, value, True, []
    if not probe.exact.kwargs:
        for slot, before in left_out(probe):
            yield slot.name, slot.default, False, before


def _changes(evaluator: Evaluator, name: str, value: Any) -> Iterator[tuple[Any, dict[str, Tensor]]]:
    main = main_leaf(resizable_leaves(evaluator))
    if main is None:
        return
    shape = tuple(main.template.shape)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and _AXIS.search(name) and len(shape) > 1 and -len(shape) <= value < len(shape):
        axis = value % len(shape)
        other = axis - 1 if axis else 1
        alike = [leaf for leaf in resizable_leaves(evaluator) if leaf.template.dim() == len(shape)]
        turned = other if value >= 0 else other - len(shape)
        yield turned, {leaf.path: _fresh(leaf.template.transpose(axis, other)) for leaf in alike}
        if shape[axis] != shape[other] and min(shape[axis], shape[other]) > 1:
            yield turned, {leaf.path: _fresh(_square(leaf.template, axis, other)) for leaf in alike}
    elif whole and value == 1 and _GROUPS.search(name):
        for leaf in evaluator.wanted:
            t = leaf.template
            if leaf is not main and t.dim() > 2 and t.shape[1] > 1 and t.shape[0] % 2 == 0 and t.shape[1] % 2 == 0:
                yield 2, {leaf.path: _fresh(t.narrow(1, 0, t.shape[1] // 2))}
    elif isinstance(value, (tuple, list)) and 0 < len(value) < len(shape) and tuple(value) == shape[-len(value) :]:
        count = shape[-len(value) - 1]
        alike = [leaf for leaf in evaluator.leaves if tuple(leaf.template.shape) == tuple(value)]
        tensors = {leaf.path: _fresh(torch.stack([leaf.template * (1 + i / 8) for i in range(count)])) for leaf in alike}
        yield type(value)((count, *value)), tensors


def _square(t: Tensor, axis: int, other: int) -> Tensor:
    side = min(t.shape[axis], t.shape[other])
    return t.narrow(axis, 0, side).narrow(other, 0, side)


def _fresh(t: Tensor) -> Tensor:
    return t.detach().clone(memory_format=torch.contiguous_format)


def _runs(evaluator: Evaluator) -> bool:
    try:
        return bool(evaluator.forward().carrying)
    except UserCodeError:
        return False
