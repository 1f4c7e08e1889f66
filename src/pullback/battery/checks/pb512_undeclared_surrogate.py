"""PB512."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..probe import Probe


class UndeclaredSurrogate(Check):
    """The gradient looks deliberate: forward is piecewise constant or returns its input unchanged, and backward is another map.

    Why it matters:
        A straight-through estimator, a surrogate or a gradient reversal is right by intention, and nothing but a declaration tells it from a mistake.

    How it is measured:
        The forward does not change at all under small moves of the input although it does under large ones, while the gradient is not zero; or an
        output equals the input bit for bit and the gradient is not grad_output. The other inputs of a forward that rounds one are taken to be meant
        as well, but for those in which forward is linear and whose gradient is the derivative without its sign or without a scale among the
        arguments: they are PB501.

    Instead:
        Declare it: ``surrogate=`` names the function whose gradient backward returns, and is then checked (PB508); ``exact=False`` says that there
        is none."""

    code = "PB512"
    name = "undeclared-surrogate"
    severity = "note"
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.declaration.deliberate:
            raise Skipped("declared")
        wrong = {v.path for v in (probe.value if probe.nonlinearity is None else probe.value_nonnegative).wrong}
        for path in sorted(wrong):
            reason = probe.deliberate(path)
            if reason:
                yield self.finding(
                    probe,
                    f"{probe.backward_name} returns a deliberate gradient for {path} that is not declared",
                    status="declared",
                    evidence=[Evidence(reason)],
                    fix="Declare it: __pullback__ = {'exact': False, 'reason': '…'}, or surrogate=f for the function whose gradient it is.",
                    path=path,
                )
