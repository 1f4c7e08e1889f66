"""PB701."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...capture.library import op_behind
from ...report.clean import clean
from ...report.finding import Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..compare import Gap, beyond, unlike
from ..evaluate import UserCodeError
from ..functional import Functional, functional, held
from ..keeping import owner
from ..probe import Probe
from ..words import gradient_name

Samples = Callable[[Tensor], list[Tensor]]
BATCH = 3
SECOND = "the second derivatives"
ALL_CHOICES = {False: 2, True: 4}
"""Up to how many inputs every choice of in_dims is tried, without and with the thorough tier."""


class VmapMismatch(Check):
    """torch.vmap of the op, or of its gradient, is not what a loop over the samples gives.

    Why it matters:
        Per-sample gradients, Jacobians and ensembles are computed through vmap; a wrong batching rule is silently wrong there alone.

    How it is measured:
        For Functions with ``setup_context`` and either ``generate_vmap_rule = True`` or a ``vmap`` of their own: three different samples, batched
        along the first and the last dimension of every choice of inputs (of each input alone, where there are many): forward, gradients and second
        derivatives (vmap of grad of grad), against a loop; and, for a rule of the Function's own, the gradient
        of the batched call. For ops of torch.library with a rule of their own (``register_vmap``): the outputs.

    Example:
        A ``vmap`` that forgets to move the batch dimension, or takes every input to be batched.

    Instead:
        ``generate_vmap_rule = True`` where forward and backward are plain torch code; else move each batched input by its own ``in_dims`` entry.
    """

    code = "PB701"
    name = "vmap-mismatch"
    severity = "error"
    needs = ("backward", "repeats", "function")

    def run(self, probe: Probe) -> Iterator[Finding]:
        orders = _offered(probe.function)
        if probe.exact.hold_everything:
            raise Skipped("draws random numbers; vmap asks how they are to differ between samples")
        op = functional(probe)
        tried = 0
        refusal = ""
        every = len(op.points) <= ALL_CHOICES[probe.settings.thorough]
        samples = _taken(op)
        for what, call in (("the outputs", op.call), ("the gradients", _gradient_of(op)), (SECOND, _second_of(op)))[:orders]:
            for how, dims, batched in _batchings(op, samples, every=every and what != SECOND):
                try:
                    expected = _loop(call, dims, batched)
                except Exception as error:
                    refusal = refusal or _said(error)
                    break
                try:
                    got = held(torch.vmap(call, in_dims=dims), *batched)
                except Exception as error:
                    refusal = _said(error)
                    continue
                tried += 1
                found = _gap(op, what, got, expected)
                if found is not None:
                    yield self._wrong(probe, what, how, found)
                    return
        try:
            lost = _lost_through(op, samples, probe.function)
        except Unsupported as why:
            lost = None
            probe.remarks[self.code] = f"the gradient through vmap was not compared: {why}"
        if lost is not None:
            yield self._through(probe, lost)
        if not tried and refusal:
            raise Unsupported(refusal)

    def _wrong(self, probe: Probe, what: str, how: str, found: Gap) -> Finding:
        return self.finding(
            probe,
            f"torch.vmap of {owner(probe)} gives other {what.removeprefix('the ')} than a loop over the samples",
            location=probe.forward_location if what == "the outputs" else probe.backward_location,
            evidence=[replace(found.evidence(f"{BATCH} samples, {how}: {found.path}"), why_tolerance=tolerance.WHY_LINEAR)],
            cause="the batching rule treats samples as one input, or moves a dimension wrongly",
            fix=_fix(probe.function),
            attachments=found.picture(found.path),
        )

    def _through(self, probe: Probe, found: Gap) -> Finding:
        return self.finding(
            probe,
            f"the gradient through torch.vmap of {owner(probe)} is another than a loop's over the samples",
            evidence=[
                replace(found.evidence(f"{BATCH} samples, vmap first and then the gradient: {found.path}"), why_tolerance=tolerance.WHY_LINEAR)
            ],
            cause="the vmap rule computes by itself, and what it does there (detach, numpy, other operators) has another gradient than backward",
            fix="in vmap, move the batch dimensions and call apply again, so that backward is used",
            attachments=found.picture(found.path),
        )


def _lost_through(op: Functional, samples: Samples, function: type[torch.autograd.Function] | None) -> Gap | None:
    """How the gradient of a batched call differs from those of the calls one by one, for a rule of the Function's own; None where it does not.

    Raises:
        Unsupported: if torch.func refuses (a RuntimeError, or a NotImplementedError, which is one): numpy, data_ptr or item() inside the rule.
        UserCodeError: if the rule raises anything else.
    """
    if function is None or op_behind(function) is not None or function.vmap is torch.autograd.Function.vmap:
        return None
    how = (0,) * len(op.points)
    batched = [torch.stack(samples(p)) for p in op.points]

    def through(*inputs: Tensor) -> tuple[Tensor, ...]:
        cotangents = tuple(c.expand(BATCH, *c.shape).clone() for c in op.cotangents)
        return torch.func.vjp(torch.vmap(op.call, in_dims=how), *inputs)[1](cotangents)

    try:
        expected, got = _loop(_gradient_of(op), how, batched), held(through, *batched)
    except RuntimeError as refusal:
        raise Unsupported(_said(refusal)) from refusal
    except Exception as error:
        raise UserCodeError("vmap", error) from error
    return _gap(op, "the gradients", got, expected)


def _offered(function: type[torch.autograd.Function] | None) -> int:
    """Return what vmap is offered for: 3 for outputs, gradients and second derivatives, 1 for outputs alone.

    Raises:
        Skipped: if it is offered for nothing.
    """
    op = op_behind(function) if function is not None else None
    if op is not None:
        if op.vmap is None:
            raise Skipped("no rule is registered with torch.library.register_vmap")
        return 1
    if function is None or function.setup_context is torch.autograd.Function.setup_context:
        raise Skipped("no setup_context: torch.func cannot use it (PB703)")
    if function.vmap is torch.autograd.Function.vmap and not getattr(function, "generate_vmap_rule", False):
        raise Skipped("offers neither generate_vmap_rule nor vmap")
    return 3


def _fix(function: type[torch.autograd.Function] | None) -> str:
    rule = "move each input by its own in_dims entry, and say where the outputs have their batch dimension"
    if function is not None and op_behind(function) is not None:
        return f"in the rule given to register_vmap, {rule}"
    return f"generate_vmap_rule = True where forward and backward are plain torch code; in vmap, {rule}"


def _gradient_of(op: Functional) -> Callable[..., tuple[Tensor, ...]]:
    def gradient(*inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vjp(op.call, *inputs)[1](op.cotangents)

    return gradient


def _second_of(op: Functional) -> Callable[..., tuple[Tensor, ...]]:
    every = tuple(range(len(op.points)))

    def squared(*inputs: Tensor) -> Tensor:
        gradients = torch.func.grad(op.scalar, argnums=every)(*inputs)
        return sum((g * g).sum() for g in gradients)  # type: ignore[return-value]

    def second(*inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.func.grad(squared, argnums=every)(*inputs)

    return second


def _moved(point: Tensor) -> list[Tensor]:
    return [point, point.flatten().roll(1).view(point.shape) * 1.125, point * 0.875]


def _scaled(point: Tensor) -> list[Tensor]:
    return [point, point * 1.125, point * 0.875]


def _taken(op: Functional) -> Samples:
    """Samples that the op takes one by one: entries that changed places, or scaled ones only for an op that is not defined everywhere."""
    for samples in (_moved, _scaled):
        with contextlib.suppress(Exception):
            for row in zip(*map(samples, op.points), strict=True):
                held(_gradient_of(op), *row)
            return samples
    return _scaled


def _said(error: Exception) -> str:
    return clean(f"{type(error).__name__}: {error}", limit=200)


def _batchings(op: Functional, samples: Samples, *, every: bool) -> Iterator[tuple[str, tuple[Any, ...], list[Tensor]]]:
    for dims in _in_dims([p.dim() for p in op.points], every=every):
        batched = [p if d is None else torch.stack(samples(p), dim=d) for p, d in zip(op.points, dims, strict=True)]
        yield f"in_dims={dims}", dims, batched


def _in_dims(ranks: list[int], *, every: bool) -> Iterator[tuple[int | None, ...]]:
    """Yield what `in_dims` is tried: all batched, at the front and at the end; then every choice of front, end and not, or each input alone."""
    yield from ((0,) * len(ranks), (-1,) * len(ranks))
    if len(ranks) == 1:
        yield from ((d,) for d in range(1, ranks[0]))
        return
    if every:
        rest: Iterable[tuple[int | None, ...]] = itertools.product((0, -1, None), repeat=len(ranks))
    else:
        rest = (tuple(0 if j == i else None for j in range(len(ranks))) for i in range(len(ranks)))
    yield from (dims for dims in rest if any(d is not None for d in dims) and set(dims) not in ({0}, {-1}))


def _loop(call: Callable[..., Any], dims: tuple[Any, ...], batched: list[Tensor]) -> list[Tensor]:
    rows = []
    for i in range(BATCH):
        rows.append(held(call, *(t if d is None else t.select(d, i).contiguous() for t, d in zip(batched, dims, strict=True))))
    return [torch.stack([row[k] for row in rows]) for k in range(len(rows[0]))]


def _gap(op: Functional, what: str, got: tuple[Tensor, ...], expected: list[Tensor]) -> Gap | None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        name = "output" if what == "the outputs" else gradient_name(op.paths[i]) if what != SECOND else f"second derivative by {op.paths[i]}"
        if a.shape != b.shape:
            return unlike(name, a, b)
        if not a.numel():
            continue
        allowed = tolerance.linear(b.dtype, float(torch.nan_to_num(b.abs()).max()), b[0].numel())
        apart = torch.nan_to_num(a.detach() - b.detach(), nan=0.0).abs()
        found = beyond(name, a.detach(), b.detach(), apart, allowed)
        if found is not None:
            return found
    return None
