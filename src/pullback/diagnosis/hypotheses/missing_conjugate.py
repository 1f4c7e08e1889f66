"""got = conj(expected), or a gradient made with a conjugate where none belongs."""

from __future__ import annotations

from collections.abc import Iterator

from ..explain import Hypothesis
from ..mismatch import Fit, Mismatch


class MissingConjugate(Hypothesis):
    """A complex derivative is not conjugated: torch's convention multiplies grad_output by the conjugate."""

    name = "missing-conjugate"
    rank = 11

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        if not mismatch.expected.is_complex() and not any(t.is_complex() for t in mismatch.cotangents.values()):
            return
        yield Fit("the gradient is the conjugate of what it should be", lambda m: m.expected.conj(), "return the conjugate of the gradient")
        yield Fit(
            "the derivative is not conjugated before it is multiplied with grad_output",
            _unconjugated,
            "multiply grad_output by the conjugate of the derivative",
        )
        for path, tensor in mismatch.arguments.items():
            if tensor.is_complex():
                yield Fit(
                    f"{path} is conjugated where it must not be, or is not where it must be",
                    lambda m, path=path: m.vjp(m.path, values={path: m.arguments[path].conj().resolve_conj()}),
                    f"conjugate {path}, or leave it as it is, where the gradient multiplies with it",
                )


def _unconjugated(m: Mismatch):
    swapped = m.vjp(m.path, cotangents={path: c.conj().resolve_conj() for path, c in m.cotangents.items()})
    return None if swapped is None else swapped.conj().resolve_conj()
