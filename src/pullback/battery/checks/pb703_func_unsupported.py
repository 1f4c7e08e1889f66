"""PB703."""

from __future__ import annotations

from collections.abc import Iterator

from ...capture.calls import methods_of
from ...report.finding import Evidence, Finding
from ..base import Check
from ..keeping import owner
from ..probe import Probe


class FuncUnsupported(Check):
    """torch.func (grad, vjp, jacrev, vmap) cannot use the Function, because forward takes ctx.

    Why it matters:
        ``torch.func.grad``, ``vmap``, ``jacrev``, ``hessian`` and everything built on them raise when they meet the Function.

    How it is measured:
        The class defines no ``setup_context``.

    Instead:
        Split forward: ``forward(x, ...)`` computes, ``setup_context(ctx, inputs, output)`` saves. ``generate_vmap_rule = True`` adds vmap where
        forward and backward are plain torch code. It costs some microseconds a call.

    References:
        PyTorch notes, "Extending torch.func with autograd.Function".
    """

    code = "PB703"
    name = "func-unsupported"
    severity = "note"
    needs = ("function",)

    def run(self, probe: Probe) -> Iterator[Finding]:
        function = probe.function
        if function is None or "setup_context" in methods_of(function):
            return
        yield self.finding(
            probe,
            f"torch.func transforms cannot use {owner(probe)}: it has no setup_context",
            status="unsupported",
            location=probe.forward_location,
            evidence=[Evidence("forward takes ctx", expected="forward without ctx, and setup_context(ctx, inputs, output)")],
            cause="the Function is written in the style that torch.func does not take",
            certain=True,
            fix="move what forward does with ctx into setup_context(ctx, inputs, output)",
        )
