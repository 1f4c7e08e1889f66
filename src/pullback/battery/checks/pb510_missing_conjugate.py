"""PB510."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from ..base import Check, Skipped
from ..conjugates import missing_conjugate
from ..probe import Probe
from ..tensors import differentiable


class MissingConjugate(Check):
    """The gradient of a complex input is right up to a complex conjugate.

    Why it matters:
        For a complex input PyTorch's gradient points where a real loss grows fastest; the conjugated one points elsewhere, and gradient descent does
        not descend. For ``y = w * x`` the gradient of x is ``grad_output * w.conj()``.

    How it is measured:
        Where the value test fails for a complex input or output, it is repeated on fresh directions with grad_output, the result, or both
        conjugated; one of these then passes.

    Example:
        ``return grad_output * w`` for ``forward = x * w`` with complex w.

    Instead:
        Conjugate every factor that multiplies grad_output: ``grad_output * w.conj()``, ``grad_output @ W.mH``.

    Limits:
        Real tensors cannot show it; give a complex sample.
    """

    code = "PB510"
    name = "missing-conjugate"
    severity = "error"
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        evaluator = probe.exact
        live = probe.baseline.outcome.live if probe.baseline.outcome else []
        if not any(t.is_complex() for t in [*live, *(leaf.template for leaf in evaluator.wanted)] if differentiable(t)):
            raise Skipped("neither inputs nor outputs are complex")
        if probe.declaration.deliberate:
            raise Skipped("declared: the gradient is not the forward's derivative")
        for wrong in probe.value.wrong:
            if wrong.none or probe.explained(wrong.path, "PB601", "PB602", "PB501"):
                continue
            form = missing_conjugate(probe, wrong.path)
            if form:
                yield self.finding(
                    probe,
                    f"{probe.backward_name} misses a complex conjugate in the gradient for {wrong.path}",
                    evidence=[
                        wrong.evidence(f"along a random direction of {wrong.path}, paired with a random complex grad_output"),
                        Evidence(f"{form} passes the same test on fresh directions"),
                    ],
                    cause="a factor of grad_output is not conjugated",
                    certain=True,
                    fix="Conjugate the factors that multiply grad_output: grad_output * w.conj(), grad_output @ W.mH.",
                    path=wrong.path,
                    attachments={"cause": self.name},
                )
