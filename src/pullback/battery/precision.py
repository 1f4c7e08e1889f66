"""How many digits a backward keeps, measured against eager autograd in the same low precision."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..report.finding import JSON
from . import tolerance
from .evaluate import Evaluator, UserCodeError
from .growth import Growth
from .locate import trusted_eager
from .picture import differences, picture
from .probe import Probe
from .single import OperatorCount
from .sizes import Resizer, Symbol, main_leaf, resizable_leaves, symbols
from .special import peaked
from .tensors import copy_tensor, random_like
from .truth import eager, other
from .value import SIGNED
from .words import gradient_name

ROWS = (32, 256, 2048)
COLUMNS = (64, 1024)
OPERATORS = 8_000
ELEMENTS = 2**24
"""How many elements the operators of one pass may return; rows that are tied to other axes, or broadcast, let them grow faster than the rows."""
SAME = 1e-3
"""Where the op in float64 is farther from the truth, the difference is not one of digits: another choice at a kink or a tie."""
Draw = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Loss:
    """The relative error of one gradient, by norms.

    Args:
        path: The input.
        dtype: In which the op ran.
        error: Norm of the error over the norm of the right gradient; infinite where it is not finite.
        eager: The same for autograd of the forward in that dtype.
        magnitude: Norm of the right gradient.
        apart: How far each entry is off.
        fine: How far an entry of autograd's gradient is off, or rounding.
    """

    path: str
    dtype: torch.dtype
    error: float
    eager: float
    magnitude: float
    apart: Tensor | None = field(default=None, repr=False, compare=False)
    fine: float = 0.0

    def picture(self, factor: float) -> dict[str, JSON]:
        """Return the attachment that shows which entries are off by more than a factor times what autograd's are, if any single one is."""
        if self.apart is None or not bool((self.apart > factor * self.fine).any()):
            return {}
        return picture(gradient_name(self.path), self.apart, factor * self.fine)

    @property
    def ratio(self) -> float:
        """How many times the measuring stick the error is."""
        return self.error / self.stick

    @property
    def stick(self) -> float:
        """The error of autograd of the forward, but at least one rounding of the result; in float32 at least 32: a plain loop over rows."""
        return max(self.eager, tolerance.eps(self.dtype) * (16 if self.dtype == torch.float32 else 0.5))


@dataclass(frozen=True, slots=True)
class Place:
    """A call at which lost digits show.

    Args:
        name: In words: ``"at the sample"``.
        evaluator: The call, in float64 where the op takes it.
        long: Whether it has many rows or long ones, where sums of one sign show what they lose.
    """

    name: str
    evaluator: Evaluator
    long: bool = False


def places(probe: Probe) -> Iterator[Place]:
    """Yield the calls at which lost digits show: the sample, with a dominating class, with many rows, and with long ones."""
    yield Place("at the sample", probe.exact)
    dominated = peaked(probe.exact)
    if dominated is not None:
        yield Place("where the entries that the index points at dominate", dominated)
    batch = next((s for s in symbols(probe.exact) if s.batch), None)
    for symbol, sizes in ((batch, ROWS), (_last_axis(probe), COLUMNS)):
        large = None if symbol is None else _long(probe, symbol, sizes)
        if large is not None:
            yield large


def _last_axis(probe: Probe) -> Symbol | None:
    """The last axis of the largest argument, along which sums may be long as well; None where it is tied to the batch or to a number."""
    main = main_leaf(resizable_leaves(probe.exact))
    if main is None:
        return None
    last = (main.path, main.template.dim() - 1)
    return next((s for s in symbols(probe.exact) if not s.batch and not s.numbers and last in s.axes), None)


def _long(probe: Probe, symbol: Symbol, sizes: Sequence[int]) -> Place | None:
    """Return the call with an axis as long as stays under a number of operator calls and of elements, judged by how these numbers grew so far."""
    best, before, elements = None, 1, 0
    growth = Growth(functools.partial(_passes, probe, symbol))
    for size in sizes:
        place = Resizer(probe.exact).resized(symbol, size) if size > symbol.size and growth.bears(size) else None
        if place is None:
            continue
        place.hold_everything = probe.exact.hold_everything
        with OperatorCount() as count:
            try:
                outcome = place.forward()
                place.vjp(outcome, [torch.ones_like(y) for y in outcome.live])
            except UserCodeError:
                break
        best = Place(f"with {symbol.said} = {size}", place, long=True)
        factor = count.calls / before if before > 1 else (count.calls / 16 if count.calls > 64 else 1.0)
        larger = count.elements * (count.elements / elements if elements else sizes[1] / sizes[0])
        if count.calls * max(factor, 1.0) > OPERATORS or larger > ELEMENTS:
            break
        before, elements = count.calls, count.elements
    return best


def _passes(probe: Probe, symbol: Symbol, size: int) -> list[Evaluator]:
    place = Resizer(probe.exact).resized(symbol, size)
    reference = probe.declaration.reference
    return [] if place is None else [place] if reference is None else [place, other(place, reference)]


def losses(probe: Probe, place: Evaluator, dtype: torch.dtype, draw: Draw) -> list[Loss]:
    """Return the error of every gradient that has a trusted truth and a measuring stick, in one dtype.

    Args:
        probe: The case.
        place: The call, in float64 where the op takes it.
        dtype: Inputs are rounded to it; truth is taken at the rounded values in float64.
        draw: Gives the cotangent for an output.

    Raises:
        UserCodeError: if the op refuses the dtype or these values.
    """
    reference = probe.declaration.reference
    low = place.cast(dtype)
    plain = other(low, reference) if reference is not None else eager(low)
    outcome = low.forward()
    cotangents = [draw(y) for y in outcome.live]
    got = low.vjp(outcome, [copy_tensor(c) for c in cotangents])
    stick = _vjp(plain, cotangents)
    truth = _vjp(plain.cast(torch.float64), cotangents)
    if stick is None or truth is None:
        return []
    own = _vjp(low.cast(torch.float64), cotangents) or [None] * len(truth)
    found = []
    for leaf, a, b, t, w in zip(low.wanted, got, stick, truth, own, strict=True):
        if a is None or b is None or t is None or (reference is None and trusted_eager(probe, leaf.path) is None):
            continue
        magnitude = float(_wide(t).norm())
        if w is not None and bool(torch.isfinite(w).all()) and not _distance(w, t) <= SAME * magnitude:
            continue
        if magnitude > 0 and magnitude < float("inf"):
            error, plain_error = _distance(a, t) / magnitude, _distance(b, t) / magnitude
            rounding = tolerance.eps(dtype) * float(_wide(t).abs().max())
            apart = differences(a, t) if a.shape == t.shape else None
            fine = max(rounding, float(differences(b, t).max()) if b.shape == t.shape else 0.0)
            found.append(Loss(leaf.path, dtype, error, plain_error, magnitude, apart, fine))
    return found


def _vjp(evaluator: Evaluator, cotangents: list[Tensor]) -> list[Tensor | None] | None:
    try:
        outcome = evaluator.forward()
        if [y.shape for y in outcome.live] != [c.shape for c in cotangents]:
            return None
        return evaluator.vjp(outcome, [c.to(y.dtype) for c, y in zip(cotangents, outcome.live, strict=True)])
    except UserCodeError:
        return None


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _distance(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    distance = float((_wide(a) - _wide(b)).norm())
    return distance if distance == distance else float("inf")


def signed(generator: torch.Generator) -> Draw:
    """Return a draw of random signed cotangents."""
    return lambda y: random_like(y, generator, SIGNED)
