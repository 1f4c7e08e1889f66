"""Recognise gradients that are another map on purpose: straight-through estimators, surrogates, gradient reversal and scaling."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from . import numeric
from .evaluate import Evaluator, Leaf, UserCodeError
from .linear_inputs import lacks_plain_factor
from .special import numbers_among
from .steered import steered_by
from .tensors import copy_tensor, differentiable
from .untrained import untrained_row
from .value import InputVerdict, spread

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
_STRAIGHT_THROUGH = re.compile(r"\bstraight[- ]through\b|\bSTE\b", re.IGNORECASE)
_ANOTHER_MAP = re.compile(
    r"\b(epsilon[- ]?LRP|LRP|(layer-?wise )?relevance|guided back-?propagation|gradient reversal|(surrogate|pseudo)[- ](gradient|derivative))s?\b",
    re.IGNORECASE,
)
LARGE_MOVES = (0.5, 2.0, 8.0)
STEPS = 16
TRIES = 4
DRAWS = 256
STANDARD_ERRORS = 5
SMALL_MOVE = 1e-4
OTHERWISE = (-1.375, 1000.0)
"""Multiples of an input at which it is returned unchanged too, where forward is the identity."""
HALVINGS = 40
LEFT = 2.0**-20
"""The least jump, relative to the values: less may be rounding."""
MOVED = 64
"""How much wider a jump is than what its sides still change in the second half of the search."""


class OnPurpose(str):
    """A reason that leaves no derivative to be meant: forward hands the input on, or never looks at what changes the gradient."""

    __slots__ = ()


class Stepped(str):
    """A reason that lies in steps of forward."""

    __slots__ = ()


def deliberate_inputs(evaluator: Evaluator, wrong: Sequence[InputVerdict], seed: int) -> dict[str, str]:
    """Return, for inputs whose gradient is not the derivative, why it looks deliberate.

    Args:
        evaluator: The call.
        wrong: The inputs whose value test failed.
        seed: Chooses the large moves.
    """
    from .guards import right_for_symmetric

    found: dict[str, str] = {}
    if not wrong:
        return found
    outcome = evaluator.forward()
    outputs = [outcome.outputs[i] for i in outcome.carrying]
    floating = [leaf for leaf in evaluator.leaves if differentiable(leaf.template)]
    returned = [leaf.path for leaf in floating if any(_same_values(y, leaf.template) for y in outputs) and _returned(evaluator, leaf)]
    for verdict in wrong:
        template = next(leaf.template for leaf in evaluator.wanted if leaf.path == verdict.path)
        if verdict.path in returned:
            found[verdict.path] = OnPurpose(f"forward returns {verdict.path} unchanged, bit for bit; backward is not the identity")
        elif not verdict.moves and not verdict.none and _steps(evaluator, verdict.path, template, seed):
            found[verdict.path] = Stepped(f"forward is piecewise constant in {verdict.path}; backward returns a gradient that is not zero")
        elif jump_of(evaluator, verdict.path, template, seed) and not right_for_symmetric(evaluator, verdict.path, seed):
            found[verdict.path] = Stepped(
                f"forward jumps as {verdict.path} moves (a rounding, sign or comparison); backward is not the derivative between jumps"
            )
        elif name := untrained_row(evaluator, verdict.path):
            found[verdict.path] = f"the row that {name} names is not trained, and forward does not read {name}"
        elif _straight_through_by_name(evaluator, verdict.path, seed):
            found[verdict.path] = "the Function calls itself straight-through, and backward hands grad_output on as it is, or zero"
        elif word := _says_another_map(evaluator):
            found[verdict.path] = f"its docstring speaks of {word!r}: backward is meant to be another map than the derivative"
        elif _right_on_average(evaluator, verdict.path, template, seed):
            found[verdict.path] = "backward draws random numbers, and its gradient is right on average"
        elif values := steered_by(evaluator, verdict.path, seed):
            found[verdict.path] = OnPurpose(f"with {values}, which forward never looks at, the gradient is right: backward changes it on purpose")
    constant = not any(verdict.moves for verdict in wrong) and len(found) < len(wrong) and _constant(evaluator, seed)
    stepped = any(isinstance(reason, Stepped) for reason in found.values())
    for verdict in wrong:
        if stepped and not lacks_plain_factor(evaluator, verdict.path, seed):
            found.setdefault(verdict.path, "forward jumps in another input: the Function is a surrogate")
        elif constant and not verdict.none:
            found.setdefault(verdict.path, "forward returns the same whatever its inputs are: the gradient is injected")
        elif returned and not verdict.moves:
            found.setdefault(verdict.path, "forward returns another input unchanged and ignores this one: its gradient is injected")
    return found


def hands_on(evaluator: Evaluator, path: str) -> bool:
    """Return whether forward returns an input as it is, bit for bit, whatever its values are."""
    leaf = next(leaf for leaf in evaluator.leaves if leaf.path == path)
    return any(_same_values(y, leaf.template) for y in evaluator.values()) and _returned(evaluator, leaf)


def _straight_through_by_name(evaluator: Evaluator, path: str, seed: int) -> bool:
    """Whether the Function's name or docstring says straight-through (or STE), and each entry of the gradient is grad_output's or zero."""
    function = evaluator.target.described
    if function is None or not (_says_straight_through(function.__name__) or _STRAIGHT_THROUGH.search(function.__doc__ or "")):
        return False
    generator = torch.Generator().manual_seed(seed + 0x57E)
    outcome = evaluator.forward()
    cotangents = [spread(y.shape, y.is_complex(), generator).to(y).abs() for y in outcome.live]
    gradients = evaluator.vjp(outcome, cotangents)
    gradient = next(g for leaf, g in zip(evaluator.wanted, gradients, strict=True) if leaf.path == path)
    return gradient is not None and any(c.shape == gradient.shape and bool(((gradient == c) | (gradient == 0)).all()) for c in cotangents)


def _says_another_map(evaluator: Evaluator) -> str:
    """The words with which a Function's docstring says that backward computes no derivative; empty where it says nothing of the kind."""
    function = evaluator.target.described
    found = _ANOTHER_MAP.search((function.__doc__ if function is not None else "") or "")
    return found.group() if found else ""


def _right_on_average(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    """Whether backward draws random numbers, and the mean of its gradients agrees with a difference quotient, along several directions."""
    generator = torch.Generator().manual_seed(seed + 0xA7E)
    index = next(i for i, leaf in enumerate(evaluator.wanted) if leaf.path == path)
    cotangents = [spread(y.shape, y.is_complex(), generator).to(y) for y in evaluator.forward().live]
    draws: list[Tensor] = []
    try:
        for k in range(DRAWS):
            gradient = evaluator.vjp(evaluator.forward(), [copy_tensor(c) for c in cotangents], seed=seed + k)[index]
            if gradient is None or (k == 1 and torch.equal(gradient, draws[0])):
                return False
            draws.append(gradient)
        return all(_agrees(evaluator, path, template, cotangents, torch.stack(draws), generator) for _ in range(TRIES))
    except UserCodeError:
        return False


def _agrees(evaluator: Evaluator, path: str, x: Tensor, cotangents: list[Tensor], draws: Tensor, generator: torch.Generator) -> bool:
    direction = spread(x.shape, x.is_complex(), generator).to(x)
    step = SMALL_MOVE * numeric.scale_of(x)
    there, back = (numeric.flat([y.detach() for y in evaluator.forward(values={path: x + sign * step * direction}).live]) for sign in (1, -1))
    expected = float(numeric.flat(cotangents) @ (there - back)) / (2 * step)
    along = torch.stack([numeric.flat([g]) for g in draws]) @ numeric.flat([direction])
    error = float(along.std()) / len(draws) ** 0.5
    return abs(float(along.mean()) - expected) <= STANDARD_ERRORS * error + SMALL_MOVE * abs(expected)


def _says_straight_through(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    return "ste" in words or ("straight", "through") in pairwise(words)


def _constant(evaluator: Evaluator, seed: int) -> bool:
    """Whether no output changes by a bit when all floating arguments are moved far, or are zero."""
    generator = torch.Generator().manual_seed(seed + 0xC0257)
    leaves = [leaf for leaf in evaluator.leaves if differentiable(leaf.template)]
    moves = [0.0, *(sign * factor for factor in LARGE_MOVES for sign in (1, -1))]

    def moved(leaf: Leaf, factor: float) -> Tensor:
        step = spread(leaf.template.shape, leaf.template.is_complex(), generator).to(leaf.template.dtype)
        return leaf.template + factor * numeric.scale_of(leaf.template) * step if factor else torch.zeros_like(leaf.template)

    try:
        here = evaluator.values()
        return not any(_differ(here, evaluator.values({leaf.path: moved(leaf, factor) for leaf in leaves})) for factor in moves)
    except UserCodeError:
        return False


def jump_of(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    """Return whether the forward jumps somewhere along a long move of one input.

    Every move is cut into steps; in those that hold the greatest part of what an output changes, the half with the greater change is taken again and
    again. A change that stays while the step shrinks by 2^-40 is a jump; at a steep place it gets less and less, at a pole it grows. The moves go to
    both sides, and as far as the largest argument is large: a threshold may lie outside of the range of the sample. Far from the sample almost any
    iteration jumps, though (a fixed point is lost, a root changes places); a jump there counts only where backward sends a gradient through outputs
    that stand still at the sample, as a surrogate does.
    """
    try:
        near, *far = _moves(evaluator, template, seed)
        if _jumps(evaluator, path, *near):
            return True
        return any(_jumps(evaluator, path, *move) for move in far) and _through_still_outputs(evaluator, path, template, seed)
    except (UserCodeError, RuntimeError):
        return False


def _through_still_outputs(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    """Whether backward gives one input a gradient through output entries that small moves of it leave as they are, bit for bit."""
    generator = torch.Generator().manual_seed(seed + 0x57111)
    outcome = evaluator.forward()
    here = [y.detach() for y in outcome.live]
    still = [torch.ones_like(y, dtype=torch.bool) for y in here]
    for _ in range(TRIES):
        move = SMALL_MOVE * numeric.scale_of(template) * spread(template.shape, template.is_complex(), generator).to(template.dtype)
        there = evaluator.forward(values={path: template + move}).live
        if [y.shape for y in there] != [y.shape for y in here]:
            return False
        still = [kept & (a == b.detach()) for kept, a, b in zip(still, here, there, strict=True)]
    cotangents = [torch.where(kept, spread(y.shape, y.is_complex(), generator).to(y), 0.0) for kept, y in zip(still, here, strict=True)]
    gradients = evaluator.vjp(outcome, cotangents)
    gradient = next(g for leaf, g in zip(evaluator.wanted, gradients, strict=True) if leaf.path == path)
    return gradient is not None and bool((gradient != 0).any())


def _moves(evaluator: Evaluator, template: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed + 0x1EA9)
    own, widest = numeric.scale_of(template), _widest(evaluator, template)

    def drawn(size: float) -> Tensor:
        return spread(template.shape, template.is_complex(), generator).to(template) * size

    yield template, drawn(own)
    yield template, drawn(8 * own)
    yield template - 2 * widest, torch.full_like(template, 4 * widest)
    there = drawn(4 * widest)
    yield template - there, 2 * there


def _widest(evaluator: Evaluator, template: Tensor) -> float:
    """The largest magnitude among the tensors and numbers of the call, but at least 1: how far from an input a threshold may lie."""
    tensors = [numeric.scale_of(leaf.template) for leaf in evaluator.leaves if differentiable(leaf.template)]
    return max(1.0, numeric.scale_of(template), *tensors, *map(abs, numbers_among(evaluator).values()))


def _jumps(evaluator: Evaluator, path: str, start: Tensor, move: Tensor) -> bool:
    def outputs_at(t: float) -> Tensor:
        return numeric.flat(evaluator.values({path: start + t * move}))

    points = [i / STEPS for i in range(STEPS + 1)]
    values = [outputs_at(t) for t in points]
    if values[0].numel() == 0 or any(v.shape != values[0].shape for v in values):
        return False
    changes = torch.stack([(b - a).abs() for a, b in pairwise(values)])
    changes = torch.where(torch.isfinite(changes), changes, 0.0)
    total, size = changes.sum(0), torch.nan_to_num(torch.stack(values).abs(), nan=0.0, posinf=0.0).amax(0)
    share = torch.where(total > LEFT * size, changes / total, 0.0)
    for flat_index in share.flatten().topk(min(TRIES, share.numel())).indices.tolist():
        step, element = divmod(flat_index, share.shape[1])
        if _stays(outputs_at, points[step], points[step + 1], element, LEFT * float(size[element])):
            return True
    return False


def _stays(outputs_at: Callable[[float], Tensor], low: float, high: float, element: int, least: float) -> bool:
    """Whether one output element's change between two points is a jump somewhere between them.

    Both sides of a jump keep their values while the step shrinks; at a steep place, a cusp or a pole they move on.
    """
    first, last = float(outputs_at(low)[element]), float(outputs_at(high)[element])
    half_way = first, last
    for n in range(HALVINGS):
        middle = (low + high) / 2
        between = float(outputs_at(middle)[element])
        if not math.isfinite(between):
            return False
        if abs(between - first) >= abs(last - between):
            high, last = middle, between
        else:
            low, first = middle, between
        if n == HALVINGS // 2:
            half_way = first, last
    moved = max(abs(first - half_way[0]), abs(last - half_way[1]))
    return abs(last - first) > max(least, MOVED * moved)


def _returned(evaluator: Evaluator, leaf: Leaf) -> bool:
    """Whether other values of an input are returned unchanged as well: relu does so with positive ones only."""
    try:
        others = [factor * leaf.template for factor in OTHERWISE]
        return all(any(_same_values(y, value) for y in evaluator.values({leaf.path: value})) for value in others)
    except UserCodeError:
        return True


def _same_values(output: Tensor, template: Tensor) -> bool:
    if output.dtype != template.dtype or output.numel() != template.numel() or output.numel() == 0:
        return False
    return bool(torch.equal(output.detach().reshape(-1), template.reshape(-1)))


def _steps(evaluator: Evaluator, path: str, template: Tensor, seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed + 0xDE11)
    scales = dict.fromkeys((numeric.scale_of(template), _widest(evaluator, template)))
    try:
        here = evaluator.values()
        for size in (factor * scale for scale in scales for factor in LARGE_MOVES):
            move = size * spread(template.shape, template.is_complex(), generator).to(template.dtype)
            if _differ(here, _values_or_none(evaluator, path, template + move) or here):
                return True
        return any(_differ(here, evaluator.values({path: template.masked_fill(zero, 0.0)})) for zero in _zeroed(template))
    except UserCodeError:
        return False


def _values_or_none(evaluator: Evaluator, path: str, value: Tensor) -> list[Tensor] | None:
    """The outputs at another value of an input; None where forward refuses it, as it does a probability above 1."""
    try:
        return evaluator.values({path: value})
    except UserCodeError:
        return None


def _zeroed(template: Tensor) -> Iterator[Tensor]:
    """Which entries to make exactly zero, where ``x != 0`` and ``sign`` have other values: each second one, then all."""
    second = torch.arange(template.numel(), device=template.device).reshape(template.shape) % 2 == 0
    yield second
    yield torch.ones_like(second)


def _differ(here: Sequence[Tensor], there: Sequence[Tensor]) -> bool:
    return any(a.shape == b.shape and differentiable(a) and not torch.equal(a, b) for a, b in zip(here, there, strict=False))
