"""PB703."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...capture.calls import methods_of
from ...capture.library import op_behind
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
        if op_behind(function) is not None:
            yield self._library(probe)
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

    def _library(self, probe: Probe) -> Finding:
        silent = _silent_jvp(probe)
        told = [Evidence("torch.func.jvp, and forward mode", got="no tangent, and no error (pytorch#179652)", expected="an error")] if silent else []
        return self.finding(
            probe,
            f"torch.func transforms cannot use {owner(probe)}: torch.library.register_autograd makes no rule for them",
            status="unsupported",
            location=probe.forward_location,
            evidence=[Evidence("torch.func.vjp", got="an error", expected="the gradient that backward() gives"), *told],
            cause="the Function that torch generates for the op has no setup_context",
            certain=True,
            fix="where torch.func is wanted, call the kernels from an autograd.Function with setup_context, or from a pb.op with opaque=True",
        )


def _silent_jvp(probe: Probe) -> bool:
    """Whether forward mode loses the derivative without a word."""
    try:
        op = functional(probe)
        _, tangents = held(lambda: torch.func.jvp(op.call, op.points, tuple(torch.ones_like(p) for p in op.points)))
    except Exception:  # an error is what is wanted
        return False
    return not any(t is not None and t.any() for t in tangents)


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
