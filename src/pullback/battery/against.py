"""An op and its reference at the same values: where do outputs and gradients differ?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..report.finding import JSON, Evidence
from . import tolerance
from .evaluate import Evaluator, Outcome, UserCodeError
from .picture import differences, picture
from .tensors import copy_tensor, differentiable, random_like
from .truth import other
from .words import told_apart

ROUNDINGS = 3
STICK = 8.0
"""How many times the error of the reference in the op's own precision the op's error may be."""


@dataclass(frozen=True, slots=True)
class Against:
    """An op, and the reference that it is judged by.

    Args:
        op: The op's call.
        truth: The reference's call on the same values, in float64 where it takes that.
        dtype: In whose digits the op works.
        plain: The reference in the op's own precision, the measuring stick; None where that is as exact as the truth.
    """

    op: Evaluator
    truth: Evaluator
    dtype: torch.dtype
    plain: Evaluator | None = None

    @classmethod
    def exactly(cls, op: Evaluator, reference: Callable[..., Any], dtype: torch.dtype) -> Against:
        """Compare an op in the digits of `dtype`."""
        return cls(op, in_double(op, reference), dtype)

    @classmethod
    def as_given(cls, op: Evaluator, reference: Callable[..., Any], dtype: torch.dtype) -> Against:
        """Compare an op in the precision of its arguments, or in the digits of `dtype` where those are fewer."""
        dtypes = [leaf.template.dtype for leaf in op.leaves if differentiable(leaf.template)]
        dtype = max([dtype, *dtypes], key=lambda d: torch.finfo(d).eps)
        return cls(op, in_double(op, reference), dtype, other(op, reference))

    def at(self, op: Evaluator) -> Against:
        """The same comparison of another call of the op."""
        function = self.truth.target.call
        return Against.as_given(op, function, self.dtype) if self.plain is not None else Against.exactly(op, function, self.dtype)

    def outputs(self, values: Mapping[str, Tensor] | None = None, *, outcome: Outcome | None = None) -> Evidence | None:
        """Return where the op's outputs differ from the reference's; None where they agree. The op runs before the reference does.

        Args:
            values: New values by path.
            outcome: The op's forward at these values, where it has run already.

        Raises:
            UserCodeError: if either raises.
        """
        outcome = self.op.forward(values=values) if outcome is None else outcome
        got = [as_plain(y) for y in outcome.outputs]
        expected = self.truth.forward(values=values)
        sticks = self._sticks(values, expected.outputs)
        for path, mine, want, stick in zip(outcome.paths, got, expected.outputs, sticks, strict=False):
            evidence = difference(path, mine, want.detach(), self.dtype, stick)
            if evidence is not None:
                return evidence
        return None

    def picture(self, values: Mapping[str, Tensor] | None = None) -> dict[str, JSON]:
        """Return the attachment that shows where the first output that differs does so.

        Raises:
            UserCodeError: if the op or the reference raises.
        """
        outcome, expected = self.op.forward(values=values), self.truth.forward(values=values)
        for path, mine, want in zip(outcome.paths, map(as_plain, outcome.outputs), expected.outputs, strict=False):
            evidence = difference(path, mine, want.detach(), self.dtype)
            if evidence is not None and evidence.tolerance is not None:
                return picture(path, differences(mine, want), evidence.tolerance)
        return {}

    def is_rounding(self, error: float, values: Mapping[str, Tensor]) -> bool:
        """Return whether an error is what the last digits of `values` decide: layer norm of equal entries is rounding and nothing else.

        Such an error is within the digits of what the reference gives elsewhere, and the reference moves as far with its input's rounding.
        """
        scale = max([float(y.detach().abs().nan_to_num().max()) for y in self.truth.forward().outputs if y.numel()], default=0.0)
        if error > tolerance.analytic(self.dtype, scale):
            return False
        generator = torch.Generator().manual_seed(0)
        base = self.truth.forward(values=values).outputs
        for _ in range(ROUNDINGS):
            moved = {path: x * (1 + tolerance.eps(self.dtype) * random_like(x, generator, (1.0,)).real) for path, x in values.items()}
            outs = self.truth.forward(values=moved).outputs
            if STICK * max(largest_error(a.detach(), b.detach()) for a, b in zip(outs, base, strict=False)) >= error:
                return True
        return False

    def _sticks(self, values: Mapping[str, Tensor] | None, expected: Sequence[Tensor]) -> list[float]:
        if self.plain is None:
            return [0.0] * len(expected)
        try:
            plain = self.plain.forward(values=values).outputs
        except UserCodeError:
            return [0.0] * len(expected)
        return [STICK * largest_error(a.detach(), b.detach()) for a, b in zip(plain, expected, strict=False)]

    def gradients(self, outcome: Outcome, cotangents: Sequence[Tensor], values: Mapping[str, Tensor] | None = None) -> list[Tensor | None] | None:
        """Return the reference's gradients for cotangents of the op's live outputs; None where the reference has no such gradients.

        Raises:
            UserCodeError: if the reference raises.
        """
        expected = self.truth.forward(values=values)
        given = dict(zip(outcome.carrying, cotangents, strict=True))
        if not set(expected.carrying) <= given.keys():
            return None
        return self.truth.vjp(expected, [given[i].to(expected.outputs[i].dtype) for i in expected.carrying])

    def shared(self, outcome: Outcome, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Return fresh copies of the cotangents, None for outputs that the reference does not return."""
        count = len(self.truth.forward().outputs)
        return [copy_tensor(c) if i < count else None for i, c in zip(outcome.carrying, cotangents, strict=True)]


def in_double(op: Evaluator, reference: Callable[..., Any]) -> Evaluator:
    """Return the reference's call on the op's values in float64, or as given where it refuses that."""
    wide = other(op.cast(torch.float64), reference)
    try:
        wide.forward()
    except UserCodeError:
        return other(op, reference)
    return wide


def as_plain(tensor: Tensor) -> Tensor:
    """Return a detached tensor of torch's own class: a class of the op's own could take part in comparisons."""
    if type(tensor) is Tensor or getattr(type(tensor), "__torch_dispatch__", None) is not getattr(Tensor, "__torch_dispatch__", None):
        return tensor.detach()
    with _compat.without_torch_function():
        return tensor.detach().as_subclass(Tensor)


def largest_error(got: Tensor, want: Tensor) -> float:
    """Return the largest error of a result among the entries that should be finite; 0 where there is nothing to compare."""
    if got.shape != want.shape or got.numel() == 0 or not differentiable(want):
        return 0.0
    wide = torch.complex128 if want.is_complex() else torch.float64
    gap = (got.to(wide) - want.to(wide)).abs()
    return float(torch.where(torch.isfinite(want), gap, 0.0).nan_to_num(nan=0.0, posinf=0.0).max())


def difference(path: str, got: Tensor, want: Tensor, dtype: torch.dtype, stick: float = 0.0) -> Evidence | None:
    """Return how two results differ by more than half the digits of `dtype` (or by more than `stick`), or None."""
    if got.numel() == 0 or got.layout is not torch.strided or want.layout is not torch.strided:
        return None
    if not differentiable(want):
        return None if torch.equal(got.to(want.dtype), want) else Evidence(f"{path}: {int((got != want).sum())} of {got.numel()} elements differ")
    kept = torch.isfinite(want)
    if not bool(kept.any()):
        return None
    wide = torch.complex128 if want.is_complex() or got.is_complex() else torch.float64
    gap = torch.where(kept, (got.to(wide) - want.to(wide)).abs(), 0.0).nan_to_num(nan=torch.inf)
    scale = float(want[kept].abs().max())
    allowed = max(tolerance.analytic(dtype, scale), stick)
    error = float(gap.max())
    if error <= allowed:
        return None
    at = int(gap.argmax())
    count = int((gap > allowed).sum())
    text = f"{path}: {count} of {gap.numel()} elements differ" if gap.numel() > 1 else path
    why = tolerance.WHY_ANALYTIC if allowed != stick else f"{STICK:g} times the error of the reference in {str(dtype).removeprefix('torch.')}"
    return Evidence(text, *told_apart(got.flatten()[at].item(), want.flatten()[at].item()), error, allowed, why)
