"""The formula is right if one argument is replaced by another or by the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch, agrees, sum_to
from ._terms import FACTORS, cotangent, operands, times


class WrongOperand(Hypothesis):
    """backward reads one tensor where the formula needs another."""

    name = "wrong-operand"
    rank = 20

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, value in mismatch.arguments.items():
            for name, operand in operands(mismatch).items():
                if name == path or operand(mismatch).shape != value.shape:
                    continue
                yield Fit(
                    f"the formula is evaluated with {name} in place of {path}",
                    lambda m, path=path, operand=operand: m.vjp(m.path, values={path: operand(m)}),
                    f"use {path} where the gradient reads {name}",
                )


class TurnedOperand(Hypothesis):
    """An argument is transposed or reversed, or not, where the formula needs it otherwise."""

    name = "wrong-operand"
    rank = 21

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for path, value in mismatch.arguments.items():
            if path == mismatch.path:
                continue
            turns: list[tuple[str, Callable[[Tensor], Tensor]]] = [
                (f"reversed along dim {dim}", lambda t, dim=dim: t.flip(dim)) for dim in range(value.dim()) if value.shape[dim] > 1
            ]
            if value.dim() > 1 and value.shape[-1] == value.shape[-2]:
                turns.insert(0, ("transposed", lambda t: t.mT.contiguous()))
            for how, turn in turns:
                yield Fit(
                    f"the formula is evaluated with {path} {how}",
                    lambda m, path=path, turn=turn: m.vjp(m.path, values={path: turn(m.arguments[path])}),
                    f"use {path} as it is, or turn it the other way round, where the gradient reads it {how}",
                )


class OutputForInput(Hypothesis):
    """A formula in the output is evaluated with an input, or the other way round."""

    name = "wrong-operand"
    rank = 24

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        found = operands(mismatch)
        for pattern, function in FACTORS.items():
            for right, operand in found.items():
                if not agrees(_formula(mismatch, function, operand), mismatch.expected):
                    continue
                for name, other in found.items():
                    if name != right and _formula(mismatch, function, other) is not None:
                        yield Fit(
                            f"the formula grad_output * {pattern.replace('{}', right)} is evaluated with {name} in place of {right}",
                            lambda m, function=function, other=other: _formula(m, function, other),
                            f"use {right} where the gradient reads {name}",
                        )


def _formula(m: Mismatch, function: Callable[[Tensor], Tensor], operand: Callable[[Mismatch], Tensor]) -> Tensor | None:
    product = times(cotangent(m), function(operand(m)))
    return None if product is None else sum_to(product, m.expected.shape)
