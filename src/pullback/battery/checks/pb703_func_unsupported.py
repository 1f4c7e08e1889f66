"""PB703."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...capture.calls import methods_of
from ...report.finding import Evidence, Finding
from ..base import Check
from ..functional import functional, held
from ..keeping import owner
from ..probe import Probe


class FuncUnsupported(Check):
    """torch.func (grad, vjp, jacrev, vmap) cannot use the Function, because forward takes ctx.

    Why it matters:
        ``torch.func.grad``, ``vmap``, ``jacrev``, ``hessian`` and everything built on them raise when they meet the Function.

    How it is measured:
        The class defines no ``setup_context``, and the target, called under ``torch.func.vjp``, does not get by without it.

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
        if function is None or "setup_context" in methods_of(function) or _takes_another_way(probe):
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


def _takes_another_way(probe: Probe) -> bool:
    """Whether the target, a callable that uses the Function, does something else under a transform."""
    if probe.target.function is not None:
        return False
    try:
        op = functional(probe)
        held(lambda: torch.func.vjp(op.call, *op.points)[0])
    except Exception:  # torch refuses the Function, or the target raises what it likes
        return False
    return True
