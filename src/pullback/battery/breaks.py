"""Numbers behind a place where forward itself breaks: a pole, a jump, a value that it refuses. What a formula says beyond it was never promised."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from . import numeric, tolerance
from .evaluate import Evaluator, UserCodeError
from .value import InputVerdict, ValueTest

BISECTIONS = 10
SLIGHTLY = 1e-3
"""Where a whole number moves by this part of the way, forward shows whether it takes fractions at all."""
MARGIN = 4
"""How many times the last bisected stretch the search for a break reaches to either side: next to a pole digits are lost before it is met."""
DECIMALS = 8
BESIDE, APART = 1e-6, 1e-3
"""A number stands apart where forward changes by the second part of itself within the first distance."""
SLIGHT, FROM_THE_START = 1e-4, 0.02
"""Rounding takes over where the first wrong gradient is off by less than the first, and that is beyond the second part of the way."""
STEPS = 16
HALVINGS = 40
ROUNDINGS = 64
"""How many units of rounding outputs may change by without that being a change."""
LASTS = 0.25
"""What is left of a change when its stretch has been halved again and again: all of it at a jump, more at a pole, nothing where forward is smooth."""


def breaks_on_the_way(base: Evaluator, there: Evaluator, name: str, path: str, seed: int) -> bool:
    """Return whether forward breaks about where the gradient of an input turns wrong, as one number goes from its value in a call to another.

    A gradient that first is right and then fades, digit by digit, is lost to rounding, which is no fault of the formula either.

    Args:
        base: The call at whose number the gradient is right.
        there: The call with the other number, where it is wrong.
        name: The number's name.
        path: The input.
        seed: Chooses directions and cotangents.
    """
    start, end = dict(base.named)[name], dict(there.named)[name]
    if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in (start, end)):
        return False

    def at(part: float) -> Evaluator:
        return there if part == 1 else there.variant({name: start + part * (end - start)})

    right, wrong, slight = 0.0, 1.0, False
    try:
        for _ in range(BISECTIONS):
            middle = (right + wrong) / 2
            test = ValueTest(at(middle), seed=seed)
            test.directions = 1
            verdict = test.careful(path)
            if verdict.ok:
                right = middle
            else:
                wrong, slight = middle, _share(verdict) < SLIGHT
        if slight and right > FROM_THE_START:
            return True
        reach = MARGIN * (wrong - right)
        near, far = max(0.0, right - reach), min(1.0, wrong + reach)
        singular = _plainest(*sorted(start + part * (end - start) for part in (near, far)))
        if _stands_apart(there, name, singular):
            return True
        rounding = max(tolerance.eps(v.dtype) for v in there.values())
        part = _break(lambda part: numeric.flat(at(part).values()), near, far, rounding)
        return part is not None and not _is_entry(there, start + part * (end - start))
    except UserCodeError:
        return isinstance(start, float) or _takes(at(SLIGHTLY))
    except (RuntimeError, StopIteration):
        return False


def _share(verdict: InputVerdict) -> float:
    """How large the error of a gradient is, relative to it."""
    return verdict.error / max(abs(verdict.got), abs(verdict.low), abs(verdict.high), 1e-300)


def _takes(call: Evaluator) -> bool:
    try:
        call.values()
    except UserCodeError:
        return False
    return True


def _plainest(low: float, high: float) -> float:
    """The number of the fewest decimals between two others."""
    middle = (low + high) / 2
    return next((c for digits in range(DECIMALS) if low <= (c := round(middle, digits)) <= high), middle)


def _stands_apart(call: Evaluator, name: str, number: float) -> bool:
    """Whether forward refuses one number, gives no finite result, or another than beside it."""
    try:
        here = numeric.flat(call.variant({name: number}).values())
    except UserCodeError:
        return True
    if not bool(torch.isfinite(here).all()):
        return True
    beside = [numeric.flat(call.variant({name: number + sign * BESIDE}).values()) for sign in (1, -1)]
    return all(v.shape != here.shape or not float((v - here).abs().max()) <= APART * numeric.scale_of(here) for v in beside)


def _is_entry(call: Evaluator, number: float) -> bool:
    """Whether a number is an entry of a tensor of the call: forward compares the two, and either side of a comparison is as good as the other."""
    entries = torch.cat([leaf.template.detach().double().flatten() for leaf in call.leaves if leaf.template.is_floating_point()])
    return bool(((entries - number).abs() <= BESIDE * max(1.0, abs(number))).any())


def _break(outputs_at: Callable[[float], Tensor], low: float, high: float, rounding: float) -> float | None:
    """Return where between two points outputs jump, grow beyond all bounds or are no numbers; None where they do not.

    Outputs that change by no more than rounding do not depend on the number, as where an iteration has converged.
    """
    points = [low + (high - low) * k / STEPS for k in range(STEPS)] + [high]
    values = [outputs_at(point) for point in points]
    broken = [point for point, v in zip(points, values, strict=True) if v.shape != values[0].shape or not bool(torch.isfinite(v).all())]
    if broken:
        return broken[0]
    changes = torch.stack([(b - a).abs() for a, b in pairwise(values)])
    step, element = divmod(int(changes.argmax()), changes.shape[1])
    before = float(changes[step, element])
    left, first, right, last = points[step], values[step][element], points[step + 1], values[step + 1][element]
    middle = left
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        between = outputs_at(middle)[element]
        if not bool(torch.isfinite(between)):
            return middle
        if (between - first).abs() >= (last - between).abs():
            right, last = middle, between
        else:
            left, first = middle, between
    least = ROUNDINGS * rounding * max(float(v.abs().max()) for v in values)
    return middle if before > least and float((last - first).abs()) > LASTS * before else None
