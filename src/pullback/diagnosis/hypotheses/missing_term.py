"""expected - got is a simple expression."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch, sum_to
from ._paths import along, paths
from ._terms import Term, cotangent, factors, times


class MissingTerm(Hypothesis):
    """A term of the product or sum rule is left out or added although it does not belong there."""

    name = "missing-term"
    rank = 26

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if cotangent(mismatch) is None:
            return
        yield Fit("the term grad_output is missing", lambda m: _with(m, None, -1.0), "add grad_output to the gradient", "returned + grad_output")
        yield Fit(
            "the term grad_output is added, which does not belong there",
            lambda m: _with(m, None, 1.0),
            "leave the term out",
            "returned - grad_output",
        )
        for name, factor in factors(mismatch):
            for sign, text, fix in (
                (-1.0, f"the term grad_output * {name} is missing", f"add grad_output * {name} to the gradient"),
                (1.0, f"the term grad_output * {name} does not belong there", f"leave the term grad_output * {name} out"),
                (2.0, f"the term grad_output * {name} has the wrong sign", f"change the sign of the term grad_output * {name}"),
                (-2.0, f"the term grad_output * {name} has the wrong sign", f"change the sign of the term grad_output * {name}"),
            ):
                mend = f"returned {'-' if sign > 0 else '+'} {'2 * ' * (abs(sign) == 2)}grad_output * {name}"
                yield Fit(text, lambda m, factor=factor, sign=sign: _with(m, factor, sign), fix, mend)


class SignOfTerm(Hypothesis):
    """The term that goes through an intermediate of forward has the wrong sign, or stands alone."""

    name = "missing-term"
    rank = 27

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        for n, place in paths(mismatch):
            yield Fit(
                f"the term that goes through {place} has the wrong sign",
                lambda m, n=n: along(m, n, lambda term: -term),
                "change the sign of that term",
            )
            yield Fit(
                f"only the term that goes through {place} is there",
                lambda m, n=n: _alone(m, n),
                "add the other terms of the product or sum rule",
            )


def _alone(m: Mismatch, n: int) -> Tensor | None:
    found = m.cut(n)
    return None if found is None or found[1].shape != m.expected.shape else m.expected - found[1]


def _with(m: Mismatch, factor: Term | None, sign: float) -> Tensor | None:
    product = cotangent(m) if factor is None else times(cotangent(m), factor(m))
    term = None if product is None else sum_to(product, m.expected.shape)
    return None if term is None else m.expected + sign * term
