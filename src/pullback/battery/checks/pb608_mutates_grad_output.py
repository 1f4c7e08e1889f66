"""PB608."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from torch import Tensor

from ...capture.calls import name_of
from ...capture.observed_calls import BackwardCall, observed_backward
from ...report.finding import Evidence, Finding
from ..base import Check
from ..branches import numbers_for_none, other_settings
from ..evaluate import Outcome, UserCodeError
from ..probe import Probe
from ..tensors import copy_tensor, same
from ..variants import other_branches

SETTINGS = 12
TRIED = 6
"""How many of so many settings are tried; flags first."""


class MutatesGradOutput(Check):
    """backward writes into grad_output.

    Why it matters:
        The engine may hand one buffer to several consumers, and a caller may use the gradient again; both then read what backward left there.

    How it is measured:
        grad_output's values and version before and after backward are compared; comparing values also sees writes through numpy or raw pointers.
        Then the values are compared once more with each flag turned round, with other words, and with a number for what is None (a warning: the
        caller asks for it).

    Example:
        ``grad_output.mul_(w)``, ``grad_output[mask] = 0``, ``torch.mul(a, b, out=grad_output)``.

    Instead:
        Work on a copy: ``grad = grad_output.clone()``, or use the out-of-place operation.

    References:
        pytorch/pytorch#141111, linkedin/Liger-Kernel#1305.
    """

    code = "PB608"
    name = "mutates-grad-output"
    severity = "error"
    needs = ()
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        outcome = probe.native.forward()
        cotangents = probe.cotangents(outcome)
        before = [copy_tensor(c) for c in cotangents]
        versions = [c._version for c in cotangents]
        with observed_backward(*probe.baseline.functions) as calls, contextlib.suppress(UserCodeError):
            probe.native.vjp(outcome, cotangents)
        written = {
            _which(outcome, i): (now, then)
            for i, (now, then, version) in enumerate(zip(cotangents, before, versions, strict=True))
            if not same(now, then) or now._version != version
        }
        if written:
            yield self._mutated(probe, probe.backward_name, written)
        elif probe.target.direct:
            yield from self._with_other_settings(probe)
        else:
            yield from self._inside(probe, calls)

    def _with_other_settings(self, probe: Probe) -> Iterator[Finding]:
        """Look at the writes of backward with each flag turned round, with other words, and with numbers in the place of None."""
        settings = (v for v in chain(numbers_for_none(probe), other_branches(probe), other_settings(probe)) if not isinstance(v.value, Tensor))
        for variant in sorted(islice(settings, SETTINGS), key=lambda v: not isinstance(v.value, bool))[:TRIED]:
            try:
                outcome = variant.evaluator.forward()
                cotangents = probe.cotangents(outcome)
                before = [copy_tensor(c) for c in cotangents]
                variant.evaluator.vjp(outcome, cotangents)
            except UserCodeError:
                continue
            pairs = enumerate(zip(cotangents, before, strict=True))
            written = {_which(outcome, i): (now, then) for i, (now, then) in pairs if not same(now, then)}
            if written:
                yield replace(self._mutated(probe, probe.backward_name, written, f" with {variant.name}"), severity="warning")
                return

    def _inside(self, probe: Probe, calls: list[BackwardCall]) -> Iterator[Finding]:
        blamed = set()
        for call in calls:
            for now, then in zip(call.grad_outputs, call.received, strict=True):
                if call.function not in blamed and now is not None and not same(now, then) and then is not None:
                    blamed.add(call.function)
                    yield self._mutated(probe, f"{name_of(call.function)}.backward", {"grad_output": (now, then)})

    def _mutated(self, probe: Probe, backward: str, written: dict[str, tuple[Tensor, Tensor]], setting: str = "") -> Finding:
        """Return the finding; its message is the same whichever settings and outputs show the fault, so that several samples tell it once."""
        return self.finding(
            probe,
            f"{backward} writes into grad_output",
            evidence=[
                Evidence(f"{int((now != then).sum())} of {now.numel()} elements of {which} changed during backward{setting}")
                for which, (now, then) in written.items()
            ],
            cause=f"an in-place operation, out=, or a kernel writes to grad_output's memory{setting}",
            certain=True,
            fix="grad_output = grad_output.clone() before the first write, or the out-of-place operation",
        )


def _which(outcome: Outcome, i: int) -> str:
    """Return how messages name the i-th cotangent."""
    path = outcome.paths[outcome.carrying[i]]
    return "grad_output" if path == "output" else f"grad_output (the one of {path})"
