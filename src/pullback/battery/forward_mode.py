"""Forward-mode derivatives: the tangents that an op returns, against difference quotients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from . import numeric, tolerance
from .evaluate import Evaluator, UserCodeError
from .tensors import differentiable, random_like
from .value import SIGNED, spread


@dataclass(frozen=True, slots=True)
class JvpMismatch:
    """A tangent that is not the derivative.

    Args:
        path: Along which input.
        got: The paired number that forward mode gives.
        low: Least value that the difference quotients allow.
        high: Greatest.
        error: Distance of `got` from that.
        allowed: Tolerance.
        missing: Whether no output had a tangent at all.
    """

    path: str
    got: float
    low: float
    high: float
    error: float
    allowed: float
    missing: bool


def wrong_tangent(evaluator: Evaluator, seed: int) -> JvpMismatch | None:
    """Return the first input along which forward mode gives another derivative than differences do, or None.

    Raises:
        UserCodeError: if the op raises under forward mode.
    """
    generator = torch.Generator().manual_seed(seed + 0xF0D)

    def evaluate(values=None) -> Tensor:
        return numeric.flat(evaluator.values(values))

    centre = evaluate()
    for leaf in evaluator.wanted:
        x = leaf.template
        if x.numel() == 0:
            continue
        direction = spread(x.shape, x.is_complex(), generator).to(x.dtype)
        found = numeric.slopes(evaluate, leaf.path, x, direction, centre)
        tangents = tangents_along(evaluator, leaf.path, direction)
        flat = numeric.flat([t for _, t in tangents])
        if flat.shape != found.low.shape:
            continue
        for _ in range(2):
            weights = random_like(flat, generator, SIGNED)
            low, high, allowed = found.bounds(weights)
            paired = torch.where(found.measured, weights * flat, 0.0)
            got = float(paired.sum())
            allowed += 64 * tolerance.eps(x.dtype) * float(paired.norm())
            error = max(low - got, got - high, 0.0) if got == got else float("nan")
            if not error <= allowed:
                return JvpMismatch(leaf.path, got, low, high, error, allowed, all(given is False for given, _ in tangents))
    return None


def tangents_along(evaluator: Evaluator, path: str, direction: Tensor) -> list[tuple[bool, Tensor]]:
    """Return for every floating output whether it has a tangent, and the tangent (zeros where it has none).

    Raises:
        UserCodeError: if the op raises under forward mode.
    """

    def dual(name: str, data: Tensor) -> Tensor:
        return forward_ad.make_dual(data, direction.clone()) if name == path else data

    with forward_ad.dual_level():
        try:
            arguments = evaluator.arguments(layout=dual, requires_grad=())
        except RuntimeError as error:
            raise UserCodeError("forward", error) from error
        outcome = evaluator.forward(arguments)
        found = []
        for y in outcome.outputs:
            if differentiable(y):
                primal, tangent = forward_ad.unpack_dual(y)
                found.append((tangent is not None, torch.zeros_like(primal) if tangent is None else tangent.detach().clone()))
        return found
