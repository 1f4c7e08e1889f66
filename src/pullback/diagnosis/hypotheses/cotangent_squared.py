"""grad_output enters to a power other than one."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class CotangentSquared(Hypothesis):
    """grad_output is multiplied in twice, or through its absolute value."""

    name = "cotangent-squared"
    rank = 15

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        yield Fit("grad_output is multiplied in twice", lambda m: _through(m, lambda c: c * c), "multiply with grad_output once")
        yield Fit("grad_output enters through its absolute value", lambda m: _through(m, lambda c: c.abs().to(c.dtype)), "use grad_output itself")
        yield Fit("grad_output enters as grad_output * |grad_output|", lambda m: _through(m, lambda c: c * c.abs()), "multiply with grad_output once")


def _through(m: Mismatch, function):
    return m.vjp(m.path, cotangents={p: function(c) for p, c in m.cotangents.items()})
