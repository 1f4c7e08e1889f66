"""Backward raises with another setting than the sample's, one that forward accepts: how bad is it, and how is it told?"""

from __future__ import annotations

from typing import Any

import torch

from ..report.finding import Evidence, Finding, Severity
from .base import Check
from .evaluate import UserCodeError
from .probe import Probe
from .refusals import blames_torch, refuses
from .variants import Variant


def severity_of_raising(probe: Probe, variant: Variant, error: UserCodeError) -> Severity | None:
    """Return how bad an error is that came up with a changed argument; None where it is no fault.

    What forward refuses or takes to no finite result, or the checked code's own `raise` anywhere, is none, and neither is what torch's own
    derivative did. Nobody may ever mean a number of the other sign or a size that no tensor has; and what the search made up may not fit to another
    setting.
    """
    if error.stage == "forward" or refuses(error) or blames_torch(error) or (variant.guessed and not never_ran(error)):
        return None
    if not all(bool(torch.isfinite(y).all()) for y in variant.evaluator.values()):
        return None
    if never_ran(error):
        return "error" if variant.passed and not variant.guessed and probe.case.origin != "searched" else "warning"
    if probe.case.origin == "searched":
        return "note"
    if not variant.passed:
        return "warning"
    return _of_number(probe, variant) if _is_number(dict(probe.exact.named).get(variant.path)) else "error"


def never_ran(error: UserCodeError) -> bool:
    """Whether backward stopped for a reason that no value can mend: a name without a value, or None where something else belongs."""
    raised = error.error
    return isinstance(raised, NameError) or (isinstance(raised, (AttributeError, TypeError)) and "NoneType" in str(raised))


def raises_with(check: Check, probe: Probe, variant: Variant, error: UserCodeError, severity: Severity) -> Finding:
    """Return the finding that backward raises with another setting."""
    return check.finding(
        probe,
        f"{probe.backward_name} raises with {variant.name}, which forward accepts",
        severity=severity,
        evidence=[Evidence(f"backward with {variant.name}", got=error.short, expected="gradients, or a forward that refuses")],
        cause=f"a branch of backward for {variant.changed} was never run" if never_ran(error) else f"backward does not follow {variant.changed}",
        certain=True,
        fix=f"Handle {variant.name} in backward, or refuse it in forward with a clear message.",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of_number(probe: Probe, variant: Variant) -> Severity | None:
    before, after = dict(probe.exact.named)[variant.path], variant.value
    if before * after < 0:
        return None
    sizes = {n for leaf in probe.exact.leaves for n in leaf.template.shape if n > 1}
    tied = type(before) is int and before in sizes
    return "note" if tied or (type(after) is int and after == 0) else "warning"
