"""Compare gradients of the same call under two circumstances, by input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..report.finding import JSON, Evidence
from . import tolerance
from .evaluate import UserCodeError
from .other_rounding import ROUNDED, SALTS, OtherRounding
from .picture import picture
from .probe import Probe
from .single import narrow_inside
from .tensors import differentiable, random_like
from .words import gradient_name, told_apart

ROUNDINGS = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """The largest difference between two results.

    Args:
        path: Of which input (or output).
        error: How large; infinite where one is NaN and the other is not.
        allowed: The tolerance.
        got: The entry there.
        expected: What it is under the other circumstance.
        apart: How far each entry is off, where the shapes are the same.
    """

    path: str
    error: float
    allowed: float
    got: str
    expected: str
    apart: Tensor | None = field(default=None, repr=False, compare=False)

    def evidence(self, text: str) -> Evidence:
        """Return the difference as evidence."""
        return Evidence(text, self.got, self.expected, self.error, self.allowed, tolerance.WHY_ANALYTIC)

    def picture(self, name: str = "") -> dict[str, JSON]:
        """Return the attachment that shows where the results differ, under a name (default: that of the gradient of `path`)."""
        return {} if self.apart is None else picture(name or gradient_name(self.path), self.apart, self.allowed)


def gradient_scales(probe: Probe) -> dict[str, float]:
    """Return the largest entry of each wanted input's gradient for random signed cotangents: what "small" means for that gradient."""

    def measured() -> dict[str, float]:
        outcome = probe.exact.forward()
        found = probe.exact.vjp(outcome, probe.cotangents(outcome))
        return {leaf.path: _largest(g) for leaf, g in zip(probe.exact.wanted, found, strict=True)}

    return probe.once("gradient_scales", measured)


def by_rounding(probe: Probe, gap: Gap, cotangents: Sequence[Tensor], *, output: bool = False, values: Mapping[str, Tensor] | None = None) -> bool:
    """Return whether rounding otherwise, in the digits in which the op computes, moves a result by as much as the gap.

    An iteration that does not converge, or a kernel that computes in float32 whatever it is given, tells any other order of operations.

    Args:
        probe: The case.
        gap: The difference.
        cotangents: For which the gradients were taken.
        output: Whether the gap is that of an output rather than of a gradient.
        values: What the inputs were, where not the sample's.
    """
    evaluator = probe.exact
    digits = torch.finfo(torch.float32).eps if narrow_inside(evaluator) else 0.0
    templates = {leaf.path: leaf.template for leaf in evaluator.leaves if differentiable(leaf.template)} | dict(values or {})
    generator = torch.Generator().manual_seed(probe.settings.seed + 0x80)

    def results(moved: Mapping[str, Tensor]) -> Tensor | None:
        outcome = evaluator.forward(values=moved)
        if output:
            return dict(zip(outcome.paths, outcome.outputs, strict=True)).get(gap.path)
        found = evaluator.vjp(outcome, [c.clone() for c in cotangents])
        return next((g for leaf, g in zip(evaluator.wanted, found, strict=True) if leaf.path == gap.path), None)

    def trials() -> Iterator[Tensor | None]:
        for salt in SALTS[:ROUNDINGS]:
            yield results({p: t * (1 + max(digits, tolerance.eps(t.dtype)) * random_like(t.real, generator, (1.0,))) for p, t in templates.items()})
            with OtherRounding(salt):
                yield results(templates)

    try:
        here = results(templates)
        return any(ROUNDED * _change(there, here) >= gap.error for there in trials())
    except UserCodeError:
        return False


def _change(there: Tensor | None, here: Tensor | None) -> float:
    return 0.0 if there is None or here is None or there.shape != here.shape or not here.numel() else float((there - here).abs().max())


def largest_gap(
    paths: Iterable[str], got: Sequence[Tensor | None], expected: Sequence[Tensor | None], scales: Mapping[str, float] | None = None
) -> Gap | None:
    """Return the largest difference beyond tolerance, or None where the results agree.

    None counts as zeros. Entries where `expected` is not finite are left out; other shapes count as an infinite difference.

    Args:
        paths: Names of the results.
        got: Results under the changed circumstance.
        expected: Results without the change.
        scales: How large each result usually is, where it may vanish by cancellation.
    """
    scales = scales or {}
    gaps = [g for g in (gap_between(p, a, b, scales.get(p, 0.0)) for p, a, b in zip(paths, got, expected, strict=True)) if g is not None]
    return max(gaps, key=lambda g: g.error / g.allowed if g.allowed else float("inf")) if gaps else None


def gap_between(path: str, got: Tensor | None, expected: Tensor | None, usual: float = 0.0) -> Gap | None:
    """Return the difference between two results, or None where they agree to half the digits of their dtype."""
    if got is None and expected is None:
        return None
    a = _zeros_like(expected) if got is None else _plain(got)
    b = _zeros_like(got) if expected is None else _plain(expected)
    if a is None or b is None or a.shape != b.shape:
        return unlike(path, a, b)
    if a.numel() == 0 or (not (a.is_floating_point() or a.is_complex()) and torch.equal(a, b)):
        return None
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    known = torch.isfinite(b)
    gap = torch.where(known, (a.to(wide) - b.to(wide)).abs(), 0.0)
    gap = torch.nan_to_num(gap, nan=torch.inf)
    finite = b[known]
    scale = max(usual, float(finite.to(wide).abs().max()) if finite.numel() else 0.0)
    narrow = max((t.dtype for t in (a, b) if t.is_floating_point() or t.is_complex()), key=tolerance.eps, default=None)
    allowed = tolerance.analytic(narrow, scale) + tolerance.linear(narrow, 1.0) if narrow is not None else 0.0
    found = beyond(path, a, b, gap, allowed)
    return found and replace(found, got="None" if got is None else found.got, expected="None" if expected is None else found.expected)


def beyond(path: str, got: Tensor, expected: Tensor, apart: Tensor, allowed: float) -> Gap | None:
    """Return the largest difference between two results of one shape, or None where no entry is farther off than allowed."""
    at = int(apart.argmax())
    error = float(apart.flatten()[at])
    return Gap(path, error, allowed, *told_apart(got.flatten()[at].item(), expected.flatten()[at].item()), apart) if error > allowed else None


def unlike(path: str, got: Tensor | None, expected: Tensor | None) -> Gap:
    """Return the difference between two results of which one is missing or has another shape."""
    shown = ["None" if t is None else f"shape {list(t.shape)}" for t in (got, expected)]
    return Gap(path, float("inf"), 0.0, shown[0], shown[1])


def _largest(tensor: Tensor | None) -> float:
    if tensor is None or tensor.numel() == 0:
        return 0.0
    return float(torch.nan_to_num(_plain(tensor).abs(), nan=0.0, posinf=0.0).max())


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _zeros_like(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.zeros_like(_plain(tensor))
