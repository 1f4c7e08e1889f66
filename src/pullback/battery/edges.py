"""The value test away from the sample: what is right there and wrong here, with eager autograd as a second opinion."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from . import numeric, tolerance
from .evaluate import Evaluator, UserCodeError
from .locate import trusted_eager
from .probe import Probe
from .rounding import rounded_away, rounding_for
from .tensors import copy_tensor, differentiable
from .truth import eager
from .untrained import untrained_row
from .value import InputVerdict, ValueTest

JOINT = 0.1
"""What may be left of the effect, in units of it: curvature leaves as much as the step, ties leave as much as the effect."""
HALVES = 5
OPINIONS = 3
"""How often autograd of the forward must pass the test: where several entries are tied, any selection passes now and then."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What the value test says about one input at a point where it fails.

    Args:
        kind: ``"wrong"``; ``"nan"`` where the gradient is NaN and autograd of the forward is not; ``"nan too"`` where it is as well.
        verdict: The failed comparison.
    """

    kind: Literal["wrong", "nan", "nan too"]
    verdict: InputVerdict


def failures(probe: Probe, evaluator: Evaluator, new: Container[str] = ()) -> list[Edge]:
    """Return the inputs whose gradient is right at the sample and wrong in another evaluator of the same op.

    Args:
        probe: The case.
        evaluator: The call.
        new: Inputs that the sample does not have.

    Raises:
        UserCodeError: if forward refuses (stage ``"forward"``) or backward raises (``"backward"``).
    """
    test = ValueTest(evaluator, seed=probe.settings.seed, leave=probe.settings.leave)
    if not test.outcome.carrying:
        return []
    known = probe.value.inputs
    found = []
    for wrong in test.run().wrong:
        base = known.get(wrong.path)
        if (base is None and wrong.path not in new) or (base is not None and not base.ok) or probe.deliberate(wrong.path):
            continue
        edge = _second_opinion(probe, evaluator, wrong)
        if edge is not None and not untrained_row(evaluator, wrong.path):
            found.append(edge)
    return found or [edge for edge in _nan_everywhere(probe, test, evaluator) if (base := known.get(edge.verdict.path)) is not None and base.ok]


def _second_opinion(probe: Probe, evaluator: Evaluator, wrong: InputVerdict) -> Edge | None:
    nan = wrong.got != wrong.got
    truth = eager(evaluator)
    if trusted_eager(probe, wrong.path) is None or (not nan and _is_nan(probe, evaluator, truth, wrong.path)):
        again = _verdict(evaluator, wrong.path, probe.settings.seed + 7)
        if again is None or again.ok is not False:
            return None
        if not nan and (not by_entry(probe, evaluator, wrong.path) or rounded_away(probe, evaluator, wrong, rounding_for(evaluator, wrong.path))):
            return None
        return Edge("nan too" if nan else "wrong", wrong)
    if agree(probe, evaluator, truth, wrong.path):
        return Edge("nan too", wrong) if nan else None
    if all((v := _verdict(truth, wrong.path, probe.settings.seed + k)) is not None and v.ok for k in range(OPINIONS)):
        if not nan and rounded_away(probe, evaluator, wrong, rounding_for(evaluator, wrong.path)):
            return None
        return Edge("nan" if nan else "wrong", wrong)
    return None


def _is_nan(probe: Probe, evaluator: Evaluator, truth: Evaluator, path: str) -> bool:
    """Whether autograd of the forward has no opinion at this point, as at the equal eigenvalues of eigh."""
    pair = gradient_pair(probe, evaluator, truth, path)
    return pair is not None and bool(torch.isnan(pair[1]).any())


def agree(probe: Probe, evaluator: Evaluator, truth: Evaluator, path: str) -> bool:
    """Return whether backward and another evaluator give the same gradient of one input, NaN included."""
    pair = gradient_pair(probe, evaluator, truth, path)
    if pair is None:
        return False
    got, expected = pair
    scale = float(torch.nan_to_num(expected.abs(), nan=0.0, posinf=0.0).max()) if expected.numel() else 0.0
    return torch.allclose(got, expected, rtol=0.0, atol=tolerance.analytic(got.dtype, scale), equal_nan=True)


def gradient_pair(probe: Probe, evaluator: Evaluator, truth: Evaluator, path: str) -> tuple[Tensor, Tensor] | None:
    """Return one input's gradient by backward and by another evaluator, for the same random cotangents; None where either has none."""
    index = next(i for i, leaf in enumerate(evaluator.wanted) if leaf.path == path)
    try:
        mine, theirs = evaluator.forward(), truth.forward()
        if len(mine.carrying) != len(theirs.carrying):
            return None
        cotangents = probe.cotangents(mine)
        got, expected = evaluator.vjp(mine, [copy_tensor(c) for c in cotangents])[index], truth.vjp(theirs, cotangents)[index]
    except UserCodeError:
        return None
    return None if got is None or expected is None or got.shape != expected.shape else (got.detach(), expected.detach())


def _verdict(evaluator: Evaluator, path: str, seed: int) -> InputVerdict | None:
    try:
        return ValueTest(evaluator, seed=seed).careful(path)
    except (UserCodeError, StopIteration):
        return None


def by_entry(probe: Probe, evaluator: Evaluator, path: str) -> bool:
    """Whether what the entries of an input do to the outputs adds up: not so where entries are tied (sort), whose gradients no interval bounds."""
    x = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    usual = next((leaf.template for leaf in probe.exact.wanted if leaf.path == path), x)
    step = rounding_for(evaluator, path) ** (1 / 3) * max(numeric.scale_of(x), numeric.scale_of(usual))
    generator = torch.Generator().manual_seed(probe.settings.seed + 11)
    try:
        here = evaluator.values()
        return all(_adds_up(evaluator, path, x, here, step, generator) for _ in range(HALVES))
    except UserCodeError:
        return True


def _adds_up(evaluator: Evaluator, path: str, x: Tensor, here: list[Tensor], step: float, generator: torch.Generator) -> bool:
    direction = step * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)
    half = (torch.rand(x.shape, generator=generator) < 0.5).to(x.device)
    moves = [_moved(evaluator, path, x + part, here) for part in (direction, direction * half, direction * ~half)]
    if any(len(m) != len(here) for m in moves):
        return True
    return all(bool((whole - a - b).abs().max() <= JOINT * whole.abs().max()) for whole, a, b in zip(*moves, strict=True) if whole.numel())


def _moved(evaluator: Evaluator, path: str, value: Tensor, here: list[Tensor]) -> list[Tensor]:
    return [b - a for a, b in zip(here, evaluator.values({path: value}), strict=False) if a.shape == b.shape]


def _nan_everywhere(probe: Probe, test: ValueTest, evaluator: Evaluator) -> list[Edge]:
    """Where the forward is NaN or jumps, nothing can be measured.

    A gradient of NaN is then worth a note, and one that is not finite is wrong where forward is finite and so is the gradient by its autograd.
    """
    for leaf, gradient in zip(evaluator.wanted, test.gradients[0], strict=True):
        if gradient is None or not bool(torch.isfinite(leaf.template).all()) or bool(torch.isfinite(gradient).all()):
            continue
        if all(bool(torch.isfinite(y).all()) for y in test.outcome.outputs if differentiable(y)) and trusted_eager(probe, leaf.path) is not None:
            pair = gradient_pair(probe, evaluator, eager(evaluator), leaf.path)
            if pair is not None and bool(torch.isfinite(pair[1]).all()):
                return [Edge("nan", InputVerdict(leaf.path, None, got=float("nan")))]
        if bool(torch.isnan(gradient).any()):
            return [Edge("nan too", InputVerdict(leaf.path, None, got=float("nan")))]
    return []
