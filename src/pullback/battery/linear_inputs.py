"""Tell a fault from a surrogate in the inputs through which nothing is rounded: forward is linear in them, and their gradient lacks a plain factor.

A quantised layer hands its weight's gradient past the rounding; what it returns for its other inputs may be another map on purpose too, such as the
derivative with the weight before it was rounded. A gradient that is the derivative but for its sign, or but for an argument that scales the outputs,
whatever its value, is no such map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from . import numeric
from .evaluate import Evaluator, UserCodeError
from .special import numbers_among
from .tensors import differentiable
from .value import spread

FACTORS = (-1.0, 2.0, -8.0)
"""Multiples of a move of the input; each must change the outputs by that multiple."""
PAIRS = 3
AGREES = 2.0**-30
"""Relative, in float64: what rounding leaves of an equality between two ways of adding up the same products."""
SEEN = 2.0**-20
"""The least part of its largest possible value that a pairing must have to tell anything."""
SCALED = 1.7


@dataclass(frozen=True, slots=True)
class Pairing:
    """One cotangent and one move of an input.

    Args:
        cotangents: One for each live output.
        change: What the move changes the live outputs by.
        gradient: What backward returns for the input.
        move: The move.
    """

    cotangents: list[Tensor]
    change: list[Tensor]
    gradient: Tensor
    move: Tensor


def lacks_plain_factor(evaluator: Evaluator, path: str, seed: int) -> bool:
    """Return whether forward is linear in an input, and the gradient for it is the derivative with a factor left out, or with the sign turned.

    Args:
        evaluator: The call; only float64 is judged.
        path: The input.
        seed: Chooses moves and cotangents.
    """
    leaf = next(leaf for leaf in evaluator.wanted if leaf.path == path)
    if leaf.template.dtype is not torch.float64 or leaf.template.numel() == 0:
        return False
    generator = torch.Generator().manual_seed(seed + 0x11EA)
    try:
        if not _linear(evaluator, path, generator):
            return False
        if all(_related(pair, lambda u: -u) for pair in _pairings(evaluator, path, generator)):
            return True
        return any(_lacks(evaluator, path, name, generator) for name in _scales(evaluator, path))
    except (UserCodeError, RuntimeError):
        return False


def _linear(evaluator: Evaluator, path: str, generator: torch.Generator) -> bool:
    """Whether each multiple of a move changes each output by that multiple (an offset that the other inputs add does not count)."""
    x = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    here = numeric.flat(evaluator.values())
    move = spread(x.shape, False, generator).to(x) * numeric.scale_of(x)
    once = numeric.flat(evaluator.values({path: x + move})) - here
    size = AGREES * float(here.abs().max() + once.abs().max()) if here.numel() else 0.0
    for factor in FACTORS:
        change = numeric.flat(evaluator.values({path: x + factor * move})) - here
        if not bool(((change - factor * once).abs() <= abs(factor) * size).all()):
            return False
    return bool((once != 0).any())


def _pairings(evaluator: Evaluator, path: str, generator: torch.Generator) -> Iterator[Pairing]:
    index, x = next((i, leaf.template) for i, leaf in enumerate(evaluator.wanted) if leaf.path == path)
    for _ in range(PAIRS):
        outcome = evaluator.forward()
        here = [y.detach() for y in outcome.live]
        cotangents = [spread(y.shape, False, generator).to(y) for y in here]
        gradient = evaluator.vjp(outcome, [c.clone() for c in cotangents])[index]
        move = spread(x.shape, False, generator).to(x) * numeric.scale_of(x)
        there = evaluator.forward(values={path: x + move}).live
        change = [b.detach() - a for a, b in zip(here, there, strict=True)]
        yield Pairing(cotangents, change, torch.zeros_like(x) if gradient is None else gradient, move)


def _related(pair: Pairing, meant: Callable[[Tensor], Tensor], moved: Callable[[Tensor], Tensor] = lambda m: m) -> bool:
    """Whether the gradient is the derivative for the cotangents that `meant` makes of the given ones, or along what `moved` makes of the move."""
    u, change = numeric.flat([meant(c) for c in pair.cotangents]), numeric.flat(pair.change)
    expected, largest = float(u @ change), float(u.abs() @ change.abs())
    got = float(numeric.flat([pair.gradient]) @ numeric.flat([moved(pair.move)]))
    return abs(expected) > SEEN * largest and abs(got - expected) <= AGREES * largest


def _scales(evaluator: Evaluator, path: str) -> Iterator[str]:
    tensors = [leaf.path for leaf in evaluator.leaves if differentiable(leaf.template) and not leaf.template.is_complex()]
    yield from (name for name in dict.fromkeys((*numbers_among(evaluator), *tensors)) if name != path)


def _lacks(evaluator: Evaluator, path: str, name: str, generator: torch.Generator) -> bool:
    """Whether forward uses the argument `name`, and the gradient lacks it as a factor of the outputs or the input, at another value of it too."""
    tensor = next((leaf.template for leaf in evaluator.leaves if leaf.path == name), None)
    value = numbers_among(evaluator)[name] if tensor is None else tensor
    if not bool(torch.as_tensor(value != 0).all()):
        return False
    other = value * (SCALED if tensor is None else 1.2 + spread(tensor.shape, False, generator).abs().to(tensor))
    try:
        elsewhere = evaluator.variant({name: other})
        if all(map(torch.equal, evaluator.values(), elsewhere.values())):
            return False
        return all(_without(e, path, v, generator) for e, v in ((evaluator, value), (elsewhere, other)))
    except UserCodeError:
        return False


def _without(evaluator: Evaluator, path: str, value: Tensor | float, generator: torch.Generator) -> bool:
    pairs = list(_pairings(evaluator, path, generator))
    turned = [value.mT] if isinstance(value, Tensor) and value.dim() == 2 else []  # one scale a row of a weight is one a column of the output
    return any(_outside(pairs, factor) or _inside(pairs, factor) for factor in (value, *turned))


def _outside(pairs: list[Pairing], factor: Tensor | float) -> bool:
    return all(all(_spreads(factor, c) for c in p.cotangents) and _related(p, lambda u: u / factor) for p in pairs)


def _inside(pairs: list[Pairing], factor: Tensor | float) -> bool:
    return all(_spreads(factor, p.move) and _related(p, lambda u: u, lambda m: m * factor) for p in pairs)


def _spreads(factor: Tensor | float, over: Tensor) -> bool:
    """Whether `factor` broadcasts to the shape of `over`, and is not as large itself, as a weight or a mask is."""
    if not isinstance(factor, Tensor):
        return True
    if factor.numel() >= max(over.numel(), 2) or factor.dim() > over.dim():
        return False
    return all(n in (1, want) for n, want in zip(reversed(factor.shape), reversed(over.shape), strict=False))
