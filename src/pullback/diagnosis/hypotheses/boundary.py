"""got and expected differ only on one side of a bound: a mask that is too wide, too narrow, inverted or missing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import AGREES, Fit, Mismatch
from ._terms import cotangent

LEAST = 12
"""Fewer elements are parted by some comparison or other too easily."""
EACH = 3
Mask = Callable[[Mismatch], Tensor]


class Boundary(Hypothesis):
    """The mask of a piecewise forward has a wrong edge in backward."""

    name = "boundary"
    rank = 20

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        grad = cotangent(mismatch)
        if grad is None or grad.shape != mismatch.expected.shape or mismatch.expected.is_complex() or mismatch.expected.numel() < LEAST:
            return
        yield Fit("the mask is inverted", _inverted, "turn the comparison round")
        wrong = (mismatch.got - mismatch.expected).abs() > AGREES * mismatch.expected.abs().max()
        if not EACH <= int(wrong.sum()) <= wrong.numel() - EACH:
            return
        for text, mask in masks(mismatch):
            if not bool((mask(mismatch) == wrong).all()):
                continue
            yield Fit(
                f"the gradient is 0 where {text}, though forward moves there",
                lambda m, mask=mask: torch.where(mask(m), 0.0, m.expected),
                f"compare with the bounds that forward uses: let the gradient pass where {text}",
            )
            yield Fit(
                f"grad_output passes unchanged where {text}, though it must not",
                lambda m, mask=mask: torch.where(mask(m), m.cotangents[next(iter(m.cotangents))], m.expected),
                f"compare with the bounds that forward uses: treat {text} as forward does",
            )


def masks(mismatch: Mismatch) -> Iterator[tuple[str, Mask]]:
    """Yield one-sided and two-sided comparisons of arguments of the gradient's shape with the numbers among the arguments, 0 and ±1."""
    named: dict[str, Callable[[Mismatch], float]] = {"0": lambda m: 0.0, "1": lambda m: 1.0, "-1": lambda m: -1.0}
    for path in mismatch.numbers:
        named[path] = lambda m, path=path: m.numbers[path]
        named[f"-{path}"] = lambda m, path=path: -m.numbers[path]
    for path, tensor in mismatch.arguments.items():
        if tensor.shape != mismatch.expected.shape or tensor.is_complex():
            continue
        for name, bound in named.items():
            yield f"{path} < {name}", lambda m, path=path, bound=bound: m.arguments[path] < bound(m)
            yield f"{path} > {name}", lambda m, path=path, bound=bound: m.arguments[path] > bound(m)
        for (low, a), (high, b) in itertools.permutations(named.items(), 2):
            yield f"{path} < {low} or {path} > {high}", lambda m, path=path, a=a, b=b: (m.arguments[path] < a(m)) | (m.arguments[path] > b(m))
            yield f"{low} < {path} < {high}", lambda m, path=path, a=a, b=b: (m.arguments[path] > a(m)) & (m.arguments[path] < b(m))


def _inverted(m: Mismatch) -> Tensor | None:
    grad = cotangent(m)
    masked = grad is not None and bool(((m.expected == 0) | (m.expected == grad)).all()) and bool((m.expected == 0).any())
    return grad - m.expected if masked and grad is not None else None
