"""PB601."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from ...capture.calls import backward_of, name_of
from ...capture.observed_calls import BackwardCall, observed_backward
from ...report.finding import Evidence, Finding
from ..base import Check
from ..evaluate import Evaluator, UserCodeError
from ..probe import Probe


class GradientCount(Check):
    """backward takes or returns another number of gradients than forward has outputs or arguments.

    Why it matters:
        The engine stops with an error, often only when a flag adds an output or when somebody first trains with the new argument.

    How it is measured:
        What backward really receives and returns is compared with the number of outputs and of arguments of forward, also with every bool argument
        flipped, and with the arguments that the sample leaves at their defaults passed by hand, which is a warning. Further Nones at the end are
        allowed, as the engine allows them.

    Example:
        ``return grad_x, None`` after forward got a third argument; ``def backward(ctx, grad_output)`` for a forward that can return two tensors.

    Instead:
        One value for each argument of forward after ctx, None for those without a gradient; one parameter for each output.

    Limits:
        Optional outputs that another argument than a bool switches on are seen only if a sample does so.
    """

    code = "PB601"
    name = "gradient-count"
    severity = "error"
    needs = ()
    stage = 1

    def run(self, probe: Probe) -> Iterator[Finding]:
        for call in probe.baseline.calls:
            found = self._judge(probe, call)
            if found is not None:
                yield found
                return
        for name, value in probe.native.named:
            if isinstance(value, bool):
                found = self._called(probe, probe.native.variant({name: not value}), f" with {name}={not value}")
                if found is not None:
                    yield found
                    return
        yield from self._with_defaults(probe)

    def _with_defaults(self, probe: Probe) -> Iterator[Finding]:
        """The call with the parameters that the sample leaves out passed by hand, as they are by default: backward must then answer for them too."""
        left = defaults_left_out(probe)
        if not left:
            return
        when = f" when {_list(left)} {'is' if len(left) == 1 else 'are'} passed"
        found = self._called(probe, probe.native.extended(list(left.values())), when)
        if found is not None:
            yield replace(found, severity="note" if probe.case.origin == "searched" else "warning")

    def _called(self, probe: Probe, evaluator: Evaluator, when: str) -> Finding | None:
        with observed_backward(*probe.baseline.functions) as calls, contextlib.suppress(UserCodeError):
            outcome = evaluator.forward()
            evaluator.vjp(outcome, probe.cotangents(outcome))
        return next((f for f in (self._judge(probe, call, when) for call in calls) if f is not None), None)

    def _judge(self, probe: Probe, call: BackwardCall, when: str = "") -> Finding | None:
        outputs = len(call.grad_outputs)
        if isinstance(call.error, TypeError) and not _takes(call):
            return self.finding(
                probe,
                f"{name_of(call.function)}.backward does not take one gradient for each output of forward{when}",
                evidence=[Evidence(f"backward called with ctx and {_count(outputs, 'gradient')}{when}", str(call.error), f"ctx, {_names(outputs)}")],
                cause=f"forward returns {_count(outputs, 'output')}{when}, and backward's signature has another number of parameters",
                certain=True,
                fix=f"def backward(ctx, {_names(outputs)}): one parameter for each output of forward, =None for optional ones",
            )
        if call.error is not None or isinstance(call.returned, list):
            return None
        arguments = len(call.context.needs_input_grad)
        returned = call.gradients
        if len(returned) == arguments or (len(returned) > arguments and all(g is None for g in returned[arguments:])):
            return None
        return self.finding(
            probe,
            f"{name_of(call.function)}.backward returns {_count(len(returned), 'gradient')}, forward takes {_count(arguments, 'argument')}{when}",
            evidence=[Evidence(f"values returned by backward{when}", str(len(returned)), f"{arguments}, one for each argument of forward after ctx")],
            cause="forward and backward were not changed together",
            fix="Return one value for each argument of forward, in order, None for those without a gradient.",
        )


def defaults_left_out(probe: Probe) -> dict[str, Any]:
    """Return the parameters of forward that the call leaves at their default, by name; none where it passes keywords."""
    function = probe.target.function if probe.target.direct else None
    if function is None or probe.native.kwargs:
        return {}
    try:
        parameters = list(inspect.signature(inspect.unwrap(function.forward)).parameters.values())
    except (TypeError, ValueError):
        return {}
    own = parameters if function.setup_context is not torch.autograd.Function.setup_context else parameters[1:]
    left = own[len(probe.native.args) :]
    usual = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return {p.name: p.default for p in left} if all(p.kind in usual and p.default is not p.empty for p in left) else {}


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _takes(call: BackwardCall) -> bool:
    try:
        signature = inspect.signature(inspect.unwrap(backward_of(call.function)))
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(call.context, *call.grad_outputs)
    except TypeError:
        return False
    return True


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _names(count: int) -> str:
    return "grad_output" if count == 1 else ", ".join(f"grad_output{i + 1}" for i in range(count))
