"""Where a wrong gradient sits: got and expected per element, from autograd of the forward where that can be trusted, else by differences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..report.finding import JSON, Evidence
from . import tolerance
from .differences import by_differences
from .evaluate import Evaluator, Outcome, UserCodeError
from .picture import picture
from .probe import Probe
from .tensors import differentiable
from .truth import eager, other
from .value import ValueTest
from .words import gradient_name, told_apart


@dataclass(frozen=True, slots=True)
class Spot:
    """A comparison of one input's whole gradient.

    Args:
        got: What backward returned, float64 or complex128.
        expected: What it should be.
        cotangents: For which cotangents.
        evidence: The worst element in words.
        attachments: The same for the page.
    """

    got: Tensor
    expected: Tensor
    cotangents: list[Tensor]
    evidence: Evidence
    attachments: dict[str, JSON]


def _expected(probe: Probe, path: str, evaluator: Evaluator, cotangents: list[Tensor]) -> Tensor | None:
    """Return the right gradient of one input for given cotangents, or None where no trusted truth is at hand."""
    truth = trusted_truth(probe, path) if evaluator is probe.exact else None if trusted_eager(probe, path) is None else eager(evaluator)
    if truth is None:
        return None
    index = next(i for i, leaf in enumerate(truth.wanted) if leaf.path == path)
    try:
        outcome = truth.forward()
        if len(outcome.carrying) != len(cotangents):
            return None
        gradient = truth.vjp(outcome, cotangents)[index]
    except UserCodeError:
        return None
    return torch.zeros_like(truth.wanted[index].template) if gradient is None else gradient


def trusted_truth(probe: Probe, path: str) -> Evaluator | None:
    """Return an evaluator whose gradient for `path` is right: the op as plain torch code, or else difference quotients of it, or None."""
    truth = trusted_eager(probe, path)
    if truth is not None:
        return truth
    cache = probe.memo.setdefault("differences", {})
    if path not in cache:
        candidate = by_differences(probe.exact)
        cache[path] = candidate if candidate is not None and _agrees(probe, candidate, path) else None
    return cache[path]


def trusted_eager(probe: Probe, path: str):
    """Return an evaluator of the op as plain torch code whose gradient for `path` agrees with difference quotients, or None."""
    cache = probe.memo.setdefault("trusted_eager", {})
    if path not in cache:
        cache[path] = _agreeing(probe, path)
    return cache[path]


def _agreeing(probe: Probe, path: str):
    if all(leaf.path != path for leaf in probe.exact.wanted):
        return None
    reference = probe.declaration.reference
    candidates = [other(probe.exact, reference)] if reference is not None else []
    return next((c for c in (*candidates, eager(probe.exact)) if _agrees(probe, c, path)), None)


def _agrees(probe: Probe, candidate: Evaluator, path: str) -> bool:
    try:
        test = ValueTest(candidate, seed=probe.settings.seed + 1)
        own = probe.exact.forward()
        if not test.outcome.carrying or len(test.outcome.outputs) != len(own.outputs):
            return False
        return _same_forward(test.outcome, own) and test.careful(path).ok is True
    except UserCodeError:
        return False


def _same_forward(a: Outcome, b: Outcome) -> bool:
    """Whether two forwards compute the same, to half the digits of their dtype: a reference of another function is no truth about gradients."""
    return all(
        y.shape == z.shape and (not differentiable(y) or torch.allclose(y.detach().to(z.dtype), z.detach(), rtol=1e-6, atol=1e-6, equal_nan=True))
        for y, z in zip(a.outputs, b.outputs, strict=True)
    )


def locate(probe: Probe, path: str) -> Spot | None:
    """Return where the gradient of `path` is wrong at the sample, or None where it cannot be told."""
    return locate_at(probe, path, probe.exact)


def locate_at(probe: Probe, path: str, evaluator: Evaluator) -> Spot | None:
    """Return where the gradient of `path` is wrong in a call of the op, or None where it cannot be told."""
    index = next(i for i, leaf in enumerate(evaluator.wanted) if leaf.path == path)
    try:
        outcome = evaluator.forward()
        cotangents = probe.cotangents(outcome)
        if probe.nonlinearity is not None:
            cotangents = [c if c.is_complex() else c.abs() for c in cotangents]
        got = evaluator.vjp(outcome, cotangents)[index]
    except UserCodeError:
        return None
    template = evaluator.wanted[index].template
    got = torch.zeros_like(template) if got is None else got.detach()
    expected = _expected(probe, path, evaluator, cotangents)
    if expected is None or expected.shape != got.shape:
        return None
    return compare(path, got, expected.detach(), cotangents)


def compare(path: str, got: Tensor, expected: Tensor, cotangents: list[Tensor], dtype: torch.dtype | None = None) -> Spot | None:
    """Return the comparison of two gradients of one input, or None where they agree to half the digits of `dtype` (default: their own)."""
    gap = torch.nan_to_num((got - expected).abs().to(torch.float64), nan=torch.inf)
    if gap.numel() == 0:
        return None
    scale = float(torch.nan_to_num(expected.abs().to(torch.float64), nan=0.0, posinf=0.0).max())
    allowed = tolerance.analytic(dtype or got.dtype, scale)
    wrong = gap > allowed
    count = int(wrong.sum())
    if count == 0:
        return None
    at = tuple(int(i) for i in torch.unravel_index(gap.argmax().cpu(), gap.shape)) if gap.dim() else ()
    element = f"[{', '.join(map(str, at))}]" if at else ""
    text = f"{gradient_name(path)}{element}: {count} of {gap.numel()} elements wrong" if gap.numel() > 1 else gradient_name(path)
    evidence = Evidence(text, *told_apart(got[at].item(), expected[at].item()), float(gap[at]), allowed, tolerance.WHY_ANALYTIC)
    return Spot(got, expected, cotangents, evidence, picture(gradient_name(path), gap, allowed))
