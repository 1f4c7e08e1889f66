"""Where a wrong gradient sits: got and expected per element, from autograd of the forward where that can be trusted, else by coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..report.finding import JSON, Evidence
from . import tolerance
from .evaluate import Evaluator, Outcome, UserCodeError, differentiable
from .probe import Probe, gradient_name
from .truth import eager, other
from .value import ValueTest

COORDINATES = 64
LISTED = 4096
GRID = (48, 64)


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


def expected_gradient(probe: Probe, path: str, cotangents: list[Tensor], values: dict[str, Tensor] | None = None) -> Tensor | None:
    """Return the right gradient of one input for given cotangents, or None where no trusted truth is at hand.

    Autograd through the forward is trusted only where it passes the same difference-quotient test.
    """
    truth = trusted_eager(probe, path)
    if truth is None:
        return None
    index = next(i for i, leaf in enumerate(truth.wanted) if leaf.path == path)
    try:
        outcome = truth.forward(values=values)
        if len(outcome.carrying) != len(cotangents):
            return None
        gradient = truth.vjp(outcome, cotangents)[index]
    except UserCodeError:
        return None
    leaf = truth.wanted[index].template
    return torch.zeros_like(leaf) if gradient is None else gradient


def trusted_eager(probe: Probe, path: str):
    """Return an evaluator of the op as plain torch code whose gradient for `path` agrees with difference quotients, or None."""
    cache = probe.memo.setdefault("trusted_eager", {})
    if path not in cache:
        cache[path] = _agreeing(probe, path)
    return cache[path]


def _agreeing(probe: Probe, path: str):
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
    """Return where the gradient of `path` is wrong, or None where it cannot be told."""
    evaluator = probe.exact
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
    expected = expected_gradient(probe, path, cotangents)
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
    evidence = Evidence(text, _number(got[at]), _number(expected[at]), float(gap[at]), allowed, tolerance.WHY_ANALYTIC)
    return Spot(got, expected, cotangents, evidence, {"gradient": _picture(path, gap, wrong, allowed)})


def _picture(path: str, gap: Tensor, wrong: Tensor, allowed: float) -> dict[str, JSON]:
    """Return where a gradient is wrong: every wrong element and by how much (None: not finite), or the share of wrong ones in each cell of a grid."""
    gap, wrong = gap.cpu(), wrong.cpu()
    picture: dict[str, JSON] = {"name": gradient_name(path), "shape": list(gap.shape), "wrong": int(wrong.sum()), "tolerance": allowed}
    if gap.numel() <= LISTED:
        errors = gap[wrong].tolist()
        where: list[JSON] = [int(i) for i in wrong.flatten().nonzero().flatten()]
        return {**picture, "where": where, "error": [float(f"{error:.2g}") if math.isfinite(error) else None for error in errors]}
    rows = wrong.reshape(-1, gap.shape[-1])
    cells = min(GRID[0], rows.shape[0]), min(GRID[1], rows.shape[1])
    share = torch.nn.functional.adaptive_avg_pool2d(rows[None].to(torch.float64), cells).flatten().tolist()
    return {**picture, "grid": {"rows": cells[0], "columns": cells[1], "share": [round(value, 3) for value in share]}}


def _number(value: Tensor) -> str:
    item = value.item()
    return f"{item:.6g}"
