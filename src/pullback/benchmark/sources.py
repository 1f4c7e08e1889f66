"""Where a benchmark's inputs come from: given tensors, a function of the size, a case, or the op's samples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..battery.discover import seed_everything
from ..battery.evaluate import Evaluator
from ..battery.searched import searched_cases
from ..capture.calls import Target
from ..capture.case import Case
from ..declare import Declaration
from ..report.clean import clean
from .call import BenchError, Call, Inputs
from .inputs import Grower, as_they_are

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
TINY = 4096
"""Up to this many elements a sample is small enough to show the cost of a call."""
SMALL = 64
_WIDE = (torch.float64, torch.complex128)


@dataclass(frozen=True, slots=True)
class Source:
    """Inputs to measure with.

    Args:
        small: Inputs so small that what is measured is the cost of a call; None where there are none.
        makers: Make the inputs of each point; they are made one after the other, since they may be large.
        note: Where they come from.
    """

    small: Inputs | None
    makers: Sequence[Callable[[], Inputs]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What inputs are for.

    Args:
        target: What is called.
        declaration: What is declared about it.
        sizes: Elements of the largest differentiated argument; None: as the source has it.
        dtype: Dtype of floating inputs; None: single precision for samples in double, and as they are for others.
        device: Where they lie; None: where they are.
        seed: Chooses them.
    """

    target: Target
    declaration: Declaration
    sizes: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    device: str | None = None
    seed: int = 0

    def source(self, inputs: Any, kwargs: Mapping[str, Any] | None) -> Source:
        """Return the inputs that `pullback.bench` means by its arguments.

        Raises:
            BenchError: if no samples are found.
        """
        if isinstance(inputs, Case):
            return self._of_sample(inputs)
        if callable(inputs) and not isinstance(inputs, Tensor):
            return self._of_function(inputs, kwargs or {})
        if inputs is None and not kwargs:
            return self._of_sample(self._sample())
        grower = self._grower(self._case(inputs, kwargs or {}), self.dtype)
        if self.sizes is None:
            return Source(_small(grower), [grower.sample])
        return Source(_small(grower), [functools.partial(grower.grown, size) for size in self.sizes], "the given inputs, grown")

    def _of_function(self, make: Callable[[int], Any], kwargs: Mapping[str, Any]) -> Source:
        def made(size: int) -> Inputs:
            seed_everything(self.seed)
            grower = self._grower(self._case(make(size), kwargs), self.dtype)
            return as_they_are(grower, size)

        small = made(SMALL)
        return Source(None if self._why_not(small) else small, [functools.partial(made, size) for size in self.sizes or SIZES])

    def _of_sample(self, case: Case) -> Source:
        grower = self._narrowed(case) or self._grower(case, self.dtype)
        origin = {"searched": "a sample that was searched", "case": "a sample that its author gives"}.get(case.origin, "a sample")
        return Source(_small(grower), [functools.partial(grower.grown, size) for size in self.sizes or SIZES], f"inputs are grown from {origin}")

    def _narrowed(self, case: Case) -> Grower | None:
        """Return the sample in single precision, unless another dtype is asked for, it is not in double, or the op does not take it."""
        grower = self._grower(case, None)
        if self.dtype is not None or not any(leaf.template.dtype in _WIDE for leaf in grower.evaluator.wanted):
            return None
        narrow = self._grower(case, torch.float32)
        return None if self._why_not(narrow.sample()) else narrow

    def _grower(self, case: Case, dtype: torch.dtype | None) -> Grower:
        evaluator = Evaluator.of_case(self.target, case)
        if dtype is not None:
            evaluator = evaluator.cast(dtype)
        if self.device is not None:
            evaluator = evaluator.to(self.device)
        return Grower(self.target, evaluator, self._why_not)

    def _case(self, inputs: Any, kwargs: Mapping[str, Any]) -> Case:
        args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
        return Case(self.target.call, args, kwargs, self.declaration)

    def _sample(self) -> Case:
        seed_everything(self.seed)
        target = self.target.function if self.target.direct else self.target.call
        cases, problem = searched_cases(target, self.declaration, self.seed)
        for case in cases:
            if not case.only:
                return case
        why = [e.got for f in problem.findings for e in f.evidence] if problem else []
        reason = clean(why[0], limit=500) if why else "none are declared"
        raise BenchError(f"no sample inputs for {self.target.name}: {reason}\n  pass inputs, (x, ...) or a function of the size that returns them")

    def _why_not(self, inputs: Inputs) -> str:
        """Return why the target does not take such arguments; empty where it does."""
        try:
            Call.prepared(self.target.name, self.target.call, inputs)
        except BenchError as error:
            return str(error)
        return ""


def _small(grower: Grower) -> Inputs | None:
    sample = grower.sample()
    if sum(t.numel() for t in sample.tensors) <= TINY:
        return sample
    try:
        return grower.grown(SMALL)
    except BenchError:
        return None
