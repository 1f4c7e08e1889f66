"""PB505."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...report.finding import Evidence, Finding
from .. import numeric, precision
from ..base import Check, Skipped, Unsupported
from ..evaluate import Evaluator, UserCodeError
from ..precision import Loss
from ..probe import Probe
from ..truth import eager
from ..words import gradient_name

LARGE = 100.0
HUGE = 1000.0
LOST = 0.5
FINE = 0.01
LIKELY = 3e4
"""A gradient of this size in float32 does not overflow in float16, whatever the order of operations."""


class UnstableBackward(Check):
    """Backward overflows, gives NaN or loses all digits where forward is finite and PyTorch's own operators are right.

    Why it matters:
        One large activation turns a whole gradient into NaN, long after the code passed its tests at values near 1.

    How it is measured:
        Each differentiated input, and all of them together, is scaled to magnitudes of up to 100 (and 1000, a note). Where the outputs are finite,
        and autograd through the forward gives a gradient that is right to 1 % in float32, the gradient of backward must have a digit too. Where the
        sample is in float16, it must have one there up to 1000 as well: the square of 300 is infinite. In float16 a row of zeros must not make it
        NaN.

    Example:
        ``exp(x) / (1 + exp(x))`` for the derivative of softplus: inf / inf at x = 100.

    Instead:
        Use the stable form: ``torch.sigmoid``, ``logsumexp``, ``log1p``, ``expm1``, or subtract the maximum first.

    Limits:
        Without a measuring stick (autograd of the forward that agrees with differences, or a reference) nothing is claimed, but that a surrogate
        (a spike, a quantiser) must not be NaN at a magnitude of up to 100.
    """

    code = "PB505"
    name = "unstable-backward"
    severity = "warning"

    def run(self, probe: Probe) -> Iterator[Finding]:
        surrogates = [leaf.path for leaf in probe.exact.wanted if probe.declaration.deliberate or probe.deliberate(leaf.path)]
        if surrogates and not probe.repeats.forward_draws:
            yield from self._of_surrogates(probe, surrogates)
            return
        if probe.declaration.deliberate or probe.nonlinearity is not None or probe.value.wrong:
            raise Skipped("the gradient is not the forward's derivative")
        if probe.repeats.forward_draws:
            raise Skipped("the op draws random numbers, which differ between dtypes")
        refusal: UserCodeError | None = None
        measured = False
        reported: set[str] = set()
        for dtype, size in _tried(probe):
            for where, place in _scaled(probe, size):
                try:
                    found = _losses(probe, place, dtype)
                except UserCodeError as error:
                    refusal = error
                    continue
                measured = measured or bool(found)
                for loss in found:
                    if loss.path not in reported and loss.eager <= FINE and loss.error > LOST:
                        reported.add(loss.path)
                        yield self._unstable(probe, loss, where, size)
        for path in _lost_at_zero(probe) if not reported else ():
            yield self._in_half(probe, path)
        if not measured and refusal is not None:
            raise Unsupported(f"float32, or values of that size, are refused: {refusal.short}")

    def _of_surrogates(self, probe: Probe, paths: list[str]) -> Iterator[Finding]:
        """Nothing says what a surrogate should be, but NaN it should not."""
        if _nan_at(probe.exact) != set():
            raise Skipped("the gradient of a surrogate is NaN at the sample, or float32 is refused")
        reported: set[str] = set()
        for size in (LARGE, -LARGE):
            for where, place in _scaled(probe, size):
                for path in sorted((_nan_at(place) or set()).intersection(paths) - reported):
                    reported.add(path)
                    yield self._nan(probe, path, where)

    def _in_half(self, probe: Probe, path: str) -> Finding:
        return self.finding(
            probe,
            f"{gradient_name(path)} of {probe.backward_name} is NaN or infinite in float16 where {path} is zero, and forward is finite",
            severity="note" if probe.case.invented else "warning",
            evidence=[
                Evidence(f"{gradient_name(path)} in float16, the first row of {path} zero", "nan or inf", "a number, as in float32 and by autograd")
            ],
            cause="a small constant that keeps a division from zero is itself zero in float16, in which nothing is below 6e-8",
            fix="Compute in float32 inside of backward, as forward does, and cast the result.",
            path=path,
        )

    def _nan(self, probe: Probe, path: str, where: str) -> Finding:
        return self.finding(
            probe,
            f"{gradient_name(path)} of {probe.backward_name} is NaN {where}, where forward is finite",
            severity="note" if probe.case.invented else "warning",
            evidence=[Evidence(f"{gradient_name(path)} in float32 {where}", "nan", "a number, as at the sample")],
            cause="an intermediate of backward overflows at this magnitude: inf / inf, or 0 * inf",
            fix="Use the stable form of the formula: torch.sigmoid for exp(x) / (1 + exp(x)), exp(-|x|) for exp(-x), or clamp before exp.",
            path=path,
        )

    def _unstable(self, probe: Probe, loss: Loss, where: str, size: float) -> Finding:
        infinite = loss.error == float("inf")
        what = "is NaN or infinite" if infinite else "has no right digit"
        dtype = str(loss.dtype).removeprefix("torch.")
        named = "" if loss.dtype == torch.float32 else f" in {dtype}"
        meant = abs(size) <= LARGE or loss.dtype == torch.float16
        return self.finding(
            probe,
            f"{gradient_name(loss.path)} of {probe.backward_name} {what}{named} {where}, where forward is finite",
            severity="warning" if meant and not probe.case.invented else "note",
            evidence=[
                Evidence(
                    f"{gradient_name(loss.path)} in {dtype} {where}: norm of the error over norm of the gradient",
                    "nan" if infinite else f"{loss.error:.2g}",
                    f"{loss.eager:.2g} by autograd of the forward in {dtype}",
                    None if infinite else loss.error,
                    LOST,
                    "one right digit",
                )
            ],
            cause="an intermediate of backward overflows, or is a difference of nearly equal numbers, at this magnitude",
            fix="Use the stable form of the formula: torch.sigmoid, logsumexp, log1p, expm1, or subtract the maximum first.",
            path=loss.path,
            attachments=loss.picture(1.0),
        )


def _scaled(probe: Probe, size: float) -> Iterator[tuple[str, Evaluator]]:
    exact = probe.exact
    values = {leaf.path: leaf.template * (size / numeric.scale_of(leaf.template)) for leaf in exact.wanted if leaf.template.numel()}
    groups = [[path] for path in values] + ([list(values)] if len(values) > 1 else [])
    for paths in groups:
        place = exact.variant({path: values[path] for path in paths})
        place.hold_everything = exact.hold_everything
        yield f"at {' and '.join(paths)} scaled to {size:g}", place


def _nan_at(place: Evaluator) -> set[str] | None:
    """Return the inputs whose gradients are NaN in float32; None where float32 is refused, or forward is not finite."""
    low = place.cast(torch.float32)
    try:
        outcome = low.forward()
        gradients = low.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
    except UserCodeError:
        return None
    if not all(bool(torch.isfinite(y).all()) for y in outcome.outputs if y.is_floating_point()):
        return None
    return {leaf.path for leaf, g in zip(low.wanted, gradients, strict=True) if g is not None and bool(torch.isnan(g).any())}


def _lost_at_zero(probe: Probe) -> list[str]:
    """Return the inputs whose gradient is finite in float32, and by autograd of the forward in float16, and not in float16 where a row is zero."""
    found = []
    for leaf in probe.exact.wanted:
        if leaf.template.is_complex() or leaf.template.dim() == 0 or leaf.template.numel() == 0:
            continue
        value = leaf.template.detach().clone()
        value[0 if value.dim() > 1 else slice(None)] = 0
        place = probe.exact.variant({leaf.path: value})
        half, full = place.cast(torch.float16), place.cast(torch.float32)
        if _largest(half, leaf.path) == math.inf and all((_largest(e, leaf.path) or math.inf) < LIKELY for e in (full, eager(half))):
            found.append(leaf.path)
    return found


def _largest(evaluator: Evaluator, path: str) -> float | None:
    """The largest entry of one gradient, infinite where an entry is no number; None where forward gives none, or something refuses."""
    try:
        outcome = evaluator.forward()
        if not outcome.live or not all(bool(torch.isfinite(y).all()) for y in outcome.live):
            return None
        gradients = evaluator.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
    except (UserCodeError, ValueError):
        return None
    found = next((g for leaf, g in zip(evaluator.wanted, gradients, strict=True) if leaf.path == path), None)
    if found is None or not found.numel():
        return None
    return float(torch.nan_to_num(found.float().abs(), nan=math.inf, posinf=math.inf).max())


def _tried(probe: Probe) -> list[tuple[torch.dtype, float]]:
    halves = any(leaf.template.dtype == torch.float16 for leaf in probe.native.wanted)
    return [*((torch.float32, size) for size in (LARGE, -LARGE, HUGE, -HUGE)), *((torch.float16, size) for size in (HUGE, -HUGE) if halves)]


def _losses(probe: Probe, place: Evaluator, dtype: torch.dtype) -> list[Loss]:
    low = place.cast(dtype)
    if not all(bool(torch.isfinite(y).all()) for y in low.values()):
        return []
    generator = torch.Generator().manual_seed(probe.settings.seed + 0x505)
    return precision.losses(probe, place, dtype, precision.signed(generator))
