"""The gradient is summed over another dimension than the one that was broadcast."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch, agrees
from ._terms import Term, cotangent, factors, times


class WrongReductionDim(Hypothesis):
    """The gradient is summed over the wrong dimension; sizes that happen to be equal hide it from shape checks."""

    name = "wrong-reduction-dim"
    rank = 19

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        grad = cotangent(mismatch)
        if grad is None or grad.dim() <= mismatch.expected.dim():
            return
        terms: list[tuple[str, Term]] = [("grad_output", cotangent)]
        terms += [(f"grad_output * {name}", lambda m, factor=factor: times(cotangent(m), factor(m))) for name, factor in factors(mismatch)]
        drop = grad.dim() - mismatch.expected.dim()
        for name, term in terms:
            value = term(mismatch)
            if value is None or value.dim() != grad.dim():
                continue
            right = [d for d in itertools.combinations(range(grad.dim()), drop) if agrees(_summed(value, d), mismatch.expected)]
            for dims in itertools.combinations(range(grad.dim()), drop):
                if right and dims not in right:
                    yield Fit(
                        f"{name} is summed over dim {_names(dims)}; it must be summed over dim {_names(right[0])}",
                        lambda m, term=term, dims=dims: _summed(term(m), dims),
                        f"sum over dim {_names(right[0])}",
                    )


def _summed(value: Tensor | None, dims: tuple[int, ...]) -> Tensor | None:
    return None if value is None else value.sum(dims)


def _names(dims: tuple[int, ...]) -> str:
    return str(dims[0]) if len(dims) == 1 else str(dims)
