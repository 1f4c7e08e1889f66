"""Loops that come to rest: an implicit derivative is that of what forward tends to, and right only once it is there."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..capture.source import called_by, syntax_of
from .branches import left_out
from .code_text import LEVELS
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .value import ValueTest

MANY_STEPS = 16
FACTORS = (8, 64, 512)
MOST_STEPS = 4096
AT_REST = 1e-13
"""A result has settled when twice as many steps change it by less than this part of itself."""
NEARLY, LESS = 1e-3, 0.01
"""At rest a gradient may be off by the first part of itself, and the second of what it was off by before: a term keeps a division from zero."""


def unsettled(probe: Probe) -> str:
    """Return ``"n_iter = 2"`` where a whole number counts the steps of a loop whose result still moves, but less and less."""
    for name, value, at in _counts(probe):
        if value > MANY_STEPS:
            continue
        try:
            first, second, third = (at(factor * value).values() for factor in (1, 2, 4))
        except UserCodeError:
            continue
        near, far = _apart(first, second), _apart(second, third)
        if 0 < near < math.inf and far <= near / 2:
            return f"{name} = {value}"
    return ""


def right_when_settled(probe: Probe, path: str) -> str:
    """Return how many steps are too few and how many are enough, in words, where the gradient of an input is right once the result has settled.

    Empty where there is no such loop, where its result does not come to rest, or where the gradient is wrong there as well.
    """
    for name, value, at in _counts(probe):
        try:
            steps = _enough(at, value)
            if not steps:
                continue
            before, after = (_share(at(n), path, probe.settings.seed) for n in (value, steps))
            if after < min(NEARLY, LESS * before):
                but = f" but for {after:.0e} of itself" if after else ""
                return f"forward stops after {name} = {value} steps; with {steps}, where its result has come to rest, the gradient is right{but}"
        except (UserCodeError, RuntimeError, StopIteration):
            continue
    return ""


def _enough(at: Callable[[int], Evaluator], value: int) -> int:
    """A number of steps after which the result moves no more, though it moves after the sample's; 0 where there is none."""
    start = at(value).values()
    for steps in (factor * value for factor in FACTORS):
        if steps > MOST_STEPS:
            return 0
        here = at(steps).values()
        size = max((float(y.abs().max()) for y in here if y.numel()), default=0.0)
        if _apart(here, at(2 * steps).values()) <= AT_REST * size:
            return steps if _apart(start, here) > AT_REST * size else 0
    return 0


def _share(evaluator: Evaluator, path: str, seed: int) -> float:
    """How much of itself a gradient is off by; infinite where nothing can be measured, or nothing moves."""
    verdict = ValueTest(evaluator, seed=seed).careful(path)
    if not verdict.moves or verdict.ok is None:
        return math.inf
    return 0.0 if verdict.ok else verdict.error / max(abs(verdict.got), abs(verdict.low), abs(verdict.high), 1e-300)


def _counts(probe: Probe) -> Iterator[tuple[str, int, Callable[[int], Evaluator]]]:
    """Yield each whole number that forward counts a loop by, passed or left at its default, with the call for another value of it."""
    function = probe.target.described
    if function is None:
        return
    counted = {name for method in called_by(function, function.forward, levels=LEVELS) for name in _ranges(syntax_of(method))}
    exact = probe.exact
    for name, value in exact.named:
        if type(value) is int and value > 0 and name in counted:
            yield name, value, lambda n, name=name: exact.variant({name: n})
    if exact.kwargs:
        return
    for slot, before in left_out(probe):
        if type(slot.default) is int and slot.default > 0 and slot.name in counted:
            yield slot.name, slot.default, lambda n, before=before: exact.extended([*before, n])


def _ranges(tree: ast.AST | None) -> Iterator[str]:
    """The names by which `range` counts."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            yield from (inner.id for argument in node.args for inner in ast.walk(argument) if isinstance(inner, ast.Name))


def _apart(a: list[Tensor], b: list[Tensor]) -> float:
    if [t.shape for t in a] != [t.shape for t in b] or not all(bool(torch.isfinite(t).all()) for t in (*a, *b)):
        return math.inf
    return max((float((x - y).abs().max()) for x, y in zip(a, b, strict=True) if x.numel()), default=0.0)
