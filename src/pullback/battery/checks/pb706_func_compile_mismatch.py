"""PB706."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..compiling import Compilable, attempt, compiled, fresh, gap
from ..evaluate import UserCodeError
from ..keeping import owner
from ..probe import Probe, gradient_name
from ..truth import eager


class FuncCompileMismatch(Check):
    """Compiled, a torch.func gradient of the op is not its custom gradient.

    Why it matters:
        ``torch.compile(torch.func.grad(f))`` silently leaves out a custom backward and differentiates the forward instead: a straight-through
        estimator gives zero, a stable formula gives NaN again.

    How it is measured:
        For Functions with ``setup_context``: ``torch.func.grad`` of the op, compiled with backend "eager", against the same uncompiled. Where the
        result is the derivative of the plain forward, torch has dropped the backward: a warning that names the torch issue. Any other difference is
        an error.

    Instead:
        Behind ``torch.compiler.allow_in_graph`` on a function at the top of a module the custom gradient is kept.

    References:
        pytorch/pytorch#193279.
    """

    code = "PB706"
    name = "func-compile-mismatch"
    severity = "warning"
    needs = ("backward", "repeats", "function")
    stage = 4

    def run(self, probe: Probe) -> Iterator[Finding]:
        function = probe.function
        if function is None or function.setup_context is torch.autograd.Function.setup_context:
            raise Skipped("no setup_context: torch.func cannot use it (PB703)")
        op = Compilable(probe)
        every = tuple(range(len(op.points)))
        gradient = torch.func.grad(op.paired, argnums=every)
        try:
            expected = gradient(*op.points)
        except Exception as error:
            raise Unsupported(f"torch.func.grad raises {type(error).__name__}") from error

        def transformed(*inputs):
            return gradient(*inputs)

        got = attempt(lambda: compiled(fresh(transformed), "eager")(*op.points))
        found = gap(op.paths, got, expected)
        if found is not None:
            yield self._wrong(probe, op, found, got)

    def _wrong(self, probe: Probe, op: Compilable, found: tuple[str, float, float], got: object) -> Finding:
        path, error, allowed = found
        dropped = _is_derivative_of_forward(probe, op, got)
        return self.finding(
            probe,
            f"torch.compile(torch.func.grad({owner(probe)})) does not give its custom gradient for {path}",
            severity="warning" if dropped else "error",
            evidence=[
                Evidence(
                    f"{gradient_name(path)} compiled and not: {error:.1e} apart", error=error, tolerance=allowed, why_tolerance=tolerance.WHY_ANALYTIC
                )
            ],
            cause="torch.compile drops the custom backward under torch.func and differentiates forward" if dropped else None,
            certain=dropped,
            fix="call the op through torch.compiler.allow_in_graph(f), f a function at the top of a module",
            upstream="pytorch/pytorch#193279" if dropped else None,
            path=path,
        )


def _is_derivative_of_forward(probe: Probe, op: Compilable, got: object) -> bool:
    try:
        plain = eager(probe.native)
        outcome = plain.forward()
        if len(outcome.live) != len(op.cotangents):
            return all(not bool(g.any()) for g in got)  # type: ignore[attr-defined]
        expected = plain.vjp(outcome, list(op.cotangents))
    except (UserCodeError, ValueError):
        return False
    return gap(op.paths, got, expected) is None
