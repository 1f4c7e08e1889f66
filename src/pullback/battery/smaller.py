"""Make a call with large tensors smaller, so that the whole battery takes seconds; what is found there is looked for at the given sizes as well."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import trees
from ..capture.calls import resolve_target
from ..capture.case import Case
from ..capture.modules import with_module_state
from .evaluate import Evaluator, Outcome, UserCodeError
from .probe import Probe
from .settings import Settings
from .sizes import Resizer, Symbol, symbols
from .tensors import copy_tensor, random_like
from .value import SIGNED, ValueTest

LARGE = 1 << 16
"""From how many elements on, of all arguments together, a call is made smaller."""
ENOUGH = 1 << 12
"""At how many elements it is small enough."""
AFFORDABLE = 1 << 22
"""Up to how many elements the gradient is compared with differences at the given sizes as well."""
BLOCKS = (16, 64, 128, 256)
"""A size is taken down to a block and what was left over of it: 4,099 to 19, so that a tail stays a tail."""


@dataclass(frozen=True, slots=True)
class Smaller:
    """A call at other sizes than the given ones.

    Args:
        case: The call.
        said: What its tensors are, and what was given.
    """

    case: Case
    said: str


def smaller(case: Case) -> Smaller | None:
    """Return the same call with the long axes of its tensors shortened, as far as forward and backward take it.

    None for a call that is small, was recorded or searched for, or cannot be made smaller.
    """
    if case.origin in ("searched", "recorded"):
        return None
    case = with_module_state(case)
    given = Evaluator.of_case(resolve_target(case.target), case)
    if _elements(given) < LARGE:
        return None
    try:
        pattern = _pattern(given)
    except UserCodeError:
        return None
    found = given
    for symbol in sorted(symbols(given), key=lambda symbol: -symbol.size):
        if _elements(found) > ENOUGH:
            found = next(_accepted(found, symbol, pattern), found)
    if found is given:
        return None
    asked = {path for path, tensor in _tensors(given) if tensor.requires_grad}
    fresh = found.variant({leaf.path: copy_tensor(leaf.template).requires_grad_(leaf.path in asked) for leaf in found.leaves})
    return Smaller(replace(case, args=fresh.args, kwargs=fresh.kwargs), _said(found, given))


def wrong_as_given(case: Case, settings: Settings) -> bool:
    """Whether a gradient that is right at other sizes disagrees with differences of forward at the given ones, where that is affordable.

    Where forward does not run in double precision it takes hundreds of evaluations to know, and is not asked.
    """
    probe = Probe(case, settings)
    if _elements(probe.native) > AFFORDABLE:
        return False
    try:
        test = ValueTest(probe.exact, seed=settings.seed, leave=settings.leave)
        cleared = test.first_pass()
        return any(test.careful(path).ok is False for path, clear in cleared.items() if not clear)
    except UserCodeError:
        return True


def _elements(evaluator: Evaluator) -> int:
    return sum(leaf.template.numel() for leaf in evaluator.leaves)


def _accepted(evaluator: Evaluator, symbol: Symbol, pattern: list[Any]) -> Iterator[Evaluator]:
    resizer = Resizer(evaluator)
    taken = {size for leaf in evaluator.leaves for size in leaf.template.shape}
    for size in (_size(symbol.size, block, taken) for block in BLOCKS):
        for option in dict.fromkeys((symbol, symbol.without_numbers())):
            changed = resizer.resized(option, size) if size < symbol.size else None
            try:
                if changed is not None and _pattern(changed) == pattern:
                    yield changed
            except UserCodeError:
                continue


def _size(size: int, block: int, taken: set[int]) -> int:
    """Return the fewest whole blocks with what is left over of a size; no size that another axis has, so that none are equal by chance."""
    return next(n for n in itertools.count(block + size % block, block) if n not in taken)


def _pattern(evaluator: Evaluator) -> list[Any]:
    """What must be alike of two calls: which outputs there are and carry gradients, which gradients are none, and where all is finite."""
    outcome = evaluator.forward()
    gradients = evaluator.vjp(outcome, _cotangents(outcome)) if outcome.carrying else []
    found = [*outcome.outputs, *gradients]
    return [outcome.carrying, [None if t is None else (t.dim(), t.dtype, bool(t.isfinite().all())) for t in found]]


def _cotangents(outcome: Outcome) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [random_like(y, generator, SIGNED) for y in outcome.live]


def _tensors(evaluator: Evaluator) -> list[tuple[str, torch.Tensor]]:
    return [(path, leaf) for name, value in evaluator.named for path, leaf in trees.leaves(value, name) if isinstance(leaf, torch.Tensor)]


def _said(found: Evaluator, given: Evaluator) -> str:
    pairs = [(a.path, list(a.template.shape), list(b.template.shape)) for a, b in zip(found.leaves, given.leaves, strict=True)]
    return ", ".join(f"{path} {new} for {old}" for path, new, old in pairs if new != old)
