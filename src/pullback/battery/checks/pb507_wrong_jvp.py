"""PB507."""

from __future__ import annotations

from collections.abc import Iterator

from ...capture.calls import Function, name_of
from ...report.finding import Evidence, Finding
from .. import tolerance
from ..base import Check, Skipped, Unsupported
from ..evaluate import UserCodeError
from ..forward_mode import JvpMismatch, wrong_tangent
from ..probe import Probe
from ..words import interval


class WrongJvp(Check):
    """The Function's jvp, its forward-mode derivative, is not the derivative of forward.

    Why it matters:
        torch.func.jvp, jacfwd, hessian and forward-over-reverse products take it instead of backward, and get another derivative.

    How it is measured:
        Each input is made a dual number along a random signed direction; the tangents of the outputs must equal the difference quotients, within
        their measured truncation and noise.

    Example:
        A jvp that leaves out the term of the second input.

    Instead:
        For every output return the sum over the inputs of derivative times tangent. An input without a tangent passes zeros, or None after
        ``ctx.set_materialize_grads(False)``.

    Limits:
        Only for a Function that defines jvp. One that lets PyTorch derive it from backward is tested through backward.
    """

    code = "PB507"
    name = "wrong-jvp"
    severity = "error"
    needs = ("repeats", "function")

    def run(self, probe: Probe) -> Iterator[Finding]:
        function = probe.function
        if function is None or function.jvp is Function.jvp:
            raise Skipped("the Function defines no jvp")
        if probe.declaration.deliberate:
            raise Skipped("declared: the derivative is deliberately another map")
        if any(probe.deliberate(leaf.path) for leaf in probe.exact.wanted):
            raise Skipped("the Function looks like a surrogate")
        try:
            wrong = wrong_tangent(probe.exact, probe.settings.seed)
        except UserCodeError as error:
            if isinstance(error.error, NotImplementedError) or "does not support" in str(error.error):
                raise Unsupported(error.short) from error
            if probe.case.invented:
                raise Skipped(f"jvp raises on what the search made up: {error.short}") from error
            yield self._raises(probe, error)
            return
        flags = getattr(function, "__pullback_flags__", None)
        if flags is not None and wrong is not None and probe.explained(wrong.path, "PB501", "PB502"):
            return
        if flags and wrong is not None:
            yield self._flag(probe, flags, wrong)
            return
        if wrong is not None:
            got, expected = interval(wrong.got, wrong.low, wrong.high)
            yield self.finding(
                probe,
                f"{name_of(function)}.jvp is not the derivative of forward along {wrong.path}",
                location=probe.forward_location,
                evidence=[
                    Evidence(
                        f"tangents of the outputs for a random tangent of {wrong.path}, paired with random weights",
                        "no output has a tangent" if wrong.missing else got,
                        expected,
                        wrong.error,
                        wrong.allowed,
                        tolerance.WHY_DIFFERENCE,
                    )
                ],
                fix=f"Check the term of {wrong.path} in jvp against the derivative of forward.",
                path=wrong.path,
            )

    def _flag(self, probe: Probe, flags: tuple[str, ...], wrong: JvpMismatch) -> Finding:
        declared = " and ".join(flags)
        return self.finding(
            probe,
            f"{probe.target.name} is declared with {declared}, which its forward is not",
            location=probe.target.location,
            evidence=[
                Evidence(
                    f"forward mode along {wrong.path}, derived from the declaration",
                    *interval(wrong.got, wrong.low, wrong.high),
                    wrong.error,
                    wrong.allowed,
                    tolerance.WHY_DIFFERENCE,
                )
            ],
            cause="forward mode and batching follow from the declaration; the vjp rule is right",
            certain=True,
            fix=f"Leave {declared} out, or give the op a jvp rule.",
            path=wrong.path,
        )

    def _raises(self, probe: Probe, error: UserCodeError) -> Finding:
        return self.finding(
            probe,
            f"{probe.target.name}.jvp raises where only one input has a tangent",
            severity="error" if len(probe.exact.wanted) == 1 else "warning",
            location=probe.forward_location,
            evidence=[Evidence("under torch.autograd.forward_ad", got=error.short)],
            cause="an input without a tangent passes None to jvp" if len(probe.exact.wanted) > 1 else None,
            fix="Treat a tangent that is None as zero, and save what jvp needs with ctx.save_for_forward.",
        )
