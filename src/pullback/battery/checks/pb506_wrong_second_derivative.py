"""PB506."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...capture.calls import backward_of
from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..evaluate import UserCodeError
from ..probe import Probe
from ..second import SecondMismatch, SecondTest
from ..single import narrow_inside
from ..words import interval


class WrongSecondDerivative(Check):
    """The gradient can be differentiated again, but what comes out is not its derivative, and nothing says so.

    Why it matters:
        Gradient penalties, Hessian products, meta-learning and implicit layers differentiate gradients. Whatever forward computes behind autograd's
        back and saves is a constant there, so its part of the second derivative is silently missing.

    How it is measured:
        The first-order gradient that backward returns is differentiated by differences along a random direction, and by ``.backward()`` through
        ``create_graph=True``; once for a loss that is linear in the output, where grad_output needs no gradient, and once for a quadratic one.

    Example:
        Saving ``y = x.exp()`` as an intermediate that is not an output; ``@once_differentiable`` together with ``op(x).sum()``: it looks at
        grad_output only, and where that needs no gradient it raises nothing.

    Instead:
        Save inputs and outputs only and compute backward from them with torch operators; or end backward in a Function of its own whose backward
        raises.

    Limits:
        An error where second order was asked for (``orders=2``), else a note. A clean refusal is never a finding. Not tested where the first-order
        gradient is deliberately another map.

    References:
        The comment in torch/autograd/function.py above once_differentiable.
    """

    code = "PB506"
    name = "wrong-second-derivative"
    severity = "error"

    def run(self, probe: Probe) -> Iterator[Finding]:
        if probe.declaration.deliberate or probe.nonlinearity is not None or probe.value.wrong:
            raise Skipped("the first-order gradient is not the forward's derivative")
        asked = probe.orders >= 2
        refusal: UserCodeError | None = None
        mismatch: SecondMismatch | None = None
        for linear in (False, True):
            try:
                mismatch = mismatch or SecondTest(probe.exact, linear=linear, seed=probe.settings.seed).run()
            except UserCodeError as error:
                refusal = error
                if not asked:
                    break
        if mismatch is not None and not asked and narrow_inside(probe.exact):
            raise Skipped("fewer digits are used inside than second differences need")
        if mismatch is not None and (asked or refusal is None):
            yield self._finding(probe, mismatch, asked)
        elif refusal is not None:
            raise Unsupported(f"backward cannot be differentiated, and says so: {refusal.short}")

    def _finding(self, probe: Probe, wrong: SecondMismatch, asked: bool) -> Finding:
        once = probe.function is not None and _once_differentiable(backward_of(probe.function))
        return self.finding(
            probe,
            f"the second derivative of {probe.target.name} with respect to {wrong.path} is wrong, and no error says so",
            severity="error" if asked else "note",
            evidence=[
                Evidence(
                    f"derivative of the gradient of {wrong.loss} along a random direction of {wrong.path}",
                    *interval(wrong.got, wrong.low, wrong.high),
                    wrong.error,
                    wrong.allowed,
                    tolerance.WHY_DIFFERENCE,
                )
            ],
            cause=_cause(wrong, once),
            fix=(
                "End backward in a Function whose own backward raises; once_differentiable does not refuse where grad_output needs no gradient."
                if once
                else "Save inputs and outputs only and recompute the rest in backward with torch operators, or refuse: @once_differentiable."
            ),
            path=wrong.path,
        )


def _cause(wrong: SecondMismatch, once: bool) -> str:
    if once:
        return "once_differentiable looks only at grad_output, which needs no gradient here, so the gradient comes out as a constant"
    if not wrong.tracked:
        return "the gradient carries no graph: it is computed from values that autograd did not see (an intermediate saved by forward)"
    return "part of the gradient is computed from values that autograd did not see (an intermediate saved by forward, detach, no_grad)"


def _once_differentiable(method: Callable[..., Any]) -> bool:
    code = getattr(method, "__code__", None)
    return hasattr(method, "__wrapped__") and code is not None and code.co_name == "wrapper" and code.co_filename.endswith("autograd/function.py")
