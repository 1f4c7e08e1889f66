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


class WrongBroadcastDim(Hypothesis):
    """grad_output of a reduction is spread over the wrong dimension; sizes that happen to be equal hide it from shape checks."""

    name = "wrong-reduction-dim"
    rank = 19

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        grad = cotangent(mismatch)
        if grad is None or grad.dim() == 0 or grad.dim() >= mismatch.expected.dim() or not bool((grad != 0).all()):
            return
        places = list(itertools.combinations(range(mismatch.expected.dim()), mismatch.expected.dim() - grad.dim()))
        for right, wrong in itertools.permutations(places, 2):
            yield Fit(
                f"grad_output is spread over dim {_names(wrong)}; forward reduces dim {_names(right)}",
                lambda m, right=right, wrong=wrong: _respread(m, right, wrong),
                f"insert the reduced dimension of grad_output at {_names(right)}",
            )


def _respread(m: Mismatch, right: tuple[int, ...], wrong: tuple[int, ...]) -> Tensor | None:
    grad = cotangent(m)
    if grad is None:
        return None
    there, here = _spread(grad, right), _spread(grad, wrong)
    fits = all(n in (1, want) for t in (there, here) for n, want in zip(t.shape, m.expected.shape, strict=True))
    return m.expected / there * here if fits else None


def _spread(grad: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        grad = grad.unsqueeze(dim)
    return grad


def _summed(value: Tensor | None, dims: tuple[int, ...]) -> Tensor | None:
    return None if value is None else value.sum(dims)


def _names(dims: tuple[int, ...]) -> str:
    return str(dims[0]) if len(dims) == 1 else str(dims)
