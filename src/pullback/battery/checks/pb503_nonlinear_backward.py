"""PB503."""

from __future__ import annotations

from collections.abc import Iterator

from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped
from ..diagnose import causes
from ..probe import Probe

OTHERWISE = "grad_output enters other than as a factor (a comparison, clamp, sign, norm or power of it), or state changes between calls"
MEND = "Make every gradient a sum of products with grad_output; if it is meant, declare linear=False with a reason."


class NonlinearBackward(Check):
    """backward is not linear in grad_output, as every vector-Jacobian product must be.

    Why it matters:
        The gradient then depends on how the loss is scaled or summed up: loss scaling, gradient accumulation and data parallelism change the result.
        torch.autograd.gradcheck tries only non-negative grad_outputs and passes ``|g|``, clipped g and guided ReLU.

    How it is measured:
        Additivity, homogeneity for -1 and 2^±8 (exact in floating point, and far enough apart to cross clipping thresholds), and backward(0) = 0.

    Example:
        ``return grad_output.clamp(-1, 1)``, ``grad_output * (grad_output > 0)``.

    Instead:
        If it is meant (guided backpropagation, clipping), declare it: ``linear=False`` with a reason.

    Limits:
        One point and one pair of cotangents: a non-linearity that starts beyond 256 times their size is not seen.
    """

    code = "PB503"
    name = "nonlinear-backward"
    severity = "error"
    stage = 2

    def run(self, probe: Probe) -> Iterator[Finding]:
        if not probe.declaration.linear:
            raise Skipped("declared: not linear in grad_output")
        broken = probe.nonlinearity
        if broken is None or probe.explained("", "PB601", "PB602"):
            return
        law, got, expected, error, allowed = broken
        deliberate = any(probe.deliberate(leaf.path) for leaf in probe.exact.wanted)
        guess = None if deliberate else next((g for leaf in probe.exact.wanted for g in causes(probe, leaf.path)[:1]), None)
        yield self.finding(
            probe,
            f"{probe.backward_name} is not linear in grad_output",
            severity="warning" if deliberate else "error",
            evidence=[Evidence(law, got, expected, error, allowed, tolerance.WHY_LINEAR)],
            cause=guess.text if guess else OTHERWISE,
            certain=guess is not None and guess.certain,
            fix=f"{guess.fix[0].upper()}{guess.fix[1:]}; if it is meant, declare linear=False with a reason." if guess and guess.fix else MEND,
            attachments={"cause": guess.name} if guess else None,
        )
