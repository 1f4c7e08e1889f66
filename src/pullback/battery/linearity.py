"""Whether backward is linear in grad_output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from . import tolerance
from .evaluate import Evaluator, Outcome, UserCodeError
from .single import narrow_inside
from .tensors import copy_tensor, full_mantissas, random_like
from .value import SIGNED
from .words import gradient_name

ZERO = "backward(0) = 0"


class Nonlinearity(NamedTuple):
    """A law of linear maps that backward breaks, with the two entries that are furthest apart."""

    law: str
    got: str
    expected: str
    error: float
    allowed: float


@dataclass(frozen=True, slots=True)
class _Law:
    """What backward gave, and what it would give if it were linear: a gradient, or None, for each wanted input."""

    text: str
    got: Sequence[Tensor | None]
    expected: Sequence[Tensor | None]


def nonlinearity(evaluator: Evaluator, generator: torch.Generator) -> Nonlinearity | None:
    """Return how backward fails to be linear in grad_output, or None where it is linear.

    Additivity, homogeneity for powers of two (exact in floating point; large and small ones cross clipping thresholds), and backward(0) = 0.
    """
    outcome = evaluator.forward()
    u, v = ([full_mantissas(random_like(y, generator, SIGNED), generator) for y in outcome.live] for _ in range(2))
    gu, gv = _gradient(evaluator, outcome, u), _gradient(evaluator, outcome, v)
    for law in _laws(evaluator, outcome, u, v, gu, gv):
        for leaf, got, expected, g, h in zip(evaluator.wanted, law.got, law.expected, gu, gv, strict=True):
            text = f"{law.text}, for {gradient_name(leaf.path)}"
            if (got is None) != (expected is None):
                return Nonlinearity(text, _presence(got), _presence(expected), float("inf"), 0.0)
            if got is None or expected is None or got.numel() == 0:
                continue
            scale = _peak(g) if law.text == ZERO else max(_peak(t) for t in (expected, g, h))
            allowed = _allowed(outcome, got, scale, g, h)
            gap = (got - expected).detach().abs()
            at = int(torch.nan_to_num(gap, nan=torch.inf).argmax())
            error = float(gap.flatten()[at])
            if not error <= allowed and not _single_inside(evaluator, outcome, error, scale):
                return Nonlinearity(text, _entry(got, at), _entry(expected, at), error, allowed)
    return None


def _laws(
    evaluator: Evaluator, outcome: Outcome, u: Sequence[Tensor], v: Sequence[Tensor], gu: Sequence[Tensor | None], gv: Sequence[Tensor | None]
) -> list[_Law]:
    both = _gradient(evaluator, outcome, [a + b for a, b in zip(u, v, strict=True)])
    laws = [_Law("backward(u + v) = backward(u) + backward(v)", both, [_plus(a, b) for a, b in zip(gu, gv, strict=True)])]
    power = 2.0 ** (4 if any(y.dtype == torch.float16 for y in outcome.live) else 8)
    for factor in (power, 1 / power, -1.0):
        got = _gradient(evaluator, outcome, [factor * a for a in u])
        laws.append(_Law(f"backward({factor:g}·u) = {factor:g}·backward(u)", got, [None if g is None else factor * g for g in gu]))
    got = _gradient(evaluator, outcome, [torch.zeros_like(a) for a in u])
    return [*laws, _Law(ZERO, got, [None if g is None else torch.zeros_like(g) for g in gu])]


def _gradient(evaluator: Evaluator, outcome: Outcome, cotangent: Sequence[Tensor]) -> list[Tensor | None]:
    try:
        return evaluator.vjp(evaluator.again(outcome), [copy_tensor(c) for c in cotangent], retain_graph=True)
    except UserCodeError:
        return evaluator.vjp(evaluator.forward(), [copy_tensor(c) for c in cotangent])


def _allowed(outcome: Outcome, got: Tensor, scale: float, *gradients: Tensor | None) -> float:
    # The sum u + v is rounded to the outputs' dtype.
    working = max(_working_dtype(*gradients), *(y.dtype for y in outcome.live), key=tolerance.eps)
    terms = outcome.live[0].numel() if working == got.dtype or tolerance.eps(working) < 1e-6 else 1
    return tolerance.linear(working, scale, terms) / (1 if terms > 1 or working == got.dtype else 4)


def _single_inside(evaluator: Evaluator, outcome: Outcome, error: float, scale: float) -> bool:
    """Whether an error is one of single precision, in which backward works although what it is given and returns is wider.

    Its gradients need not show it: the engine sums them over what was broadcast, in the dtype of the input.
    """
    return error <= tolerance.linear(torch.float32, scale, outcome.live[0].numel()) and narrow_inside(evaluator)


def _working_dtype(*gradients: Tensor | None) -> torch.dtype:
    """The dtype of fewest digits that holds these gradients exactly: what a backward that casts inside really works in."""
    found = [g.detach() for g in gradients if g is not None]
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if all(not g.is_complex() and torch.equal(g.to(dtype).to(g.dtype), g) for g in found):
            return dtype
    return found[0].dtype


def _peak(tensor: Tensor | None) -> float:
    return float(tensor.detach().abs().max()) if tensor is not None and tensor.numel() else 0.0


def _entry(tensor: Tensor, index: int) -> str:
    return f"{tensor.detach().flatten()[index].item():.6g}"


def _presence(gradient: Tensor | None) -> str:
    return "None" if gradient is None else "a tensor"


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
