"""What a check is: one fault, one file, one class."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import ClassVar, Literal

from ..report.finding import JSON, Evidence, Finding, Location, Severity, Status
from .probe import Probe

Need = Literal["backward", "repeats", "function", "direct"]


class Skipped(Exception):
    """Raised by a check that does not apply or could not measure; the reason is printed in the summary, nothing is claimed."""


class Unsupported(Exception):
    """Raised by a check that met a clean refusal: the op does not offer this, and says so."""


class Check:
    """One fault the battery looks for. Subclasses live one to a file in `checks/`.

    A check yields findings; none means passed. It reads shared results from the probe, never from another check, and evaluates the op with
    fresh arguments.

    Attributes:
        code: The stable code.
        name: The fault, worded so that it reads well after "allow".
        severity: Of its findings, unless one says otherwise.
        needs: What must hold for the check to say anything: ``"backward"`` (forward and backward run at the given inputs), ``"repeats"`` (both
            repeat bit for bit under a held random state), ``"function"`` (there is one Function class to look at), ``"direct"`` (arguments are
            the Function's own).
        stage: Order: 1 what backward returns and writes, 2 values, 3 the rest, 4 what is slow. Later stages may ask `probe.explained`.
        tier: ``"default"``, ``"thorough"``, ``"distributed"`` or ``"gpu"``.
        compiler: Whether it makes torch import its compiler.
        metered: Whether it may be stopped where evaluations are dear.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    needs: ClassVar[tuple[Need, ...]] = ("backward", "repeats")
    stage: ClassVar[int] = 3
    tier: ClassVar[Literal["default", "thorough", "distributed", "gpu"]] = "default"
    compiler: ClassVar[bool] = False
    metered: ClassVar[bool] = True

    def run(self, probe: Probe) -> Iterable[Finding]:
        """Yield findings about the probe's case.

        Raises:
            Skipped: if the check does not apply to this op or could not measure.
            Unsupported: if the op cleanly refuses what is tried.
        """
        raise NotImplementedError

    def finding(
        self,
        probe: Probe,
        message: str,
        *,
        severity: Severity | None = None,
        status: Status = "fail",
        location: Location | None = None,
        evidence: Sequence[Evidence] = (),
        cause: str | None = None,
        certain: bool = False,
        fix: str | None = None,
        upstream: str | None = None,
        path: str | None = None,
        attachments: Mapping[str, JSON] | None = None,
    ) -> Finding:
        """Return a finding of this check with subject, default location (backward's) and repro filled in.

        `path` names the input whose gradient is concerned, so that later checks of the same gradient can count it as explained.
        """
        parts: dict[str, JSON] = dict(attachments or {})
        if path and location is None and probe.target.rule_of(path) is not None:
            location = probe.target.backward_location_of(path)
        if path is not None:
            parts["input"] = path
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            status=status,
            subject=probe.target.subject,
            message=message,
            location=location or probe.backward_location,
            evidence=tuple(evidence),
            cause=cause,
            certain=certain,
            fix=fix,
            repro=probe.repro(self.code),
            upstream=upstream,
            attachments=parts,
        )


@cache
def all_checks() -> tuple[Check, ...]:
    """Return one instance of every check in `checks/`, in the order in which they run."""
    from . import checks

    found: list[Check] = []
    for module in pkgutil.iter_modules(checks.__path__):
        if module.name.startswith("pb"):
            loaded = importlib.import_module(f"{checks.__name__}.{module.name}")
            found.extend(v() for v in vars(loaded).values() if isinstance(v, type) and issubclass(v, Check) and v.__module__ == loaded.__name__)
    return tuple(sorted(found, key=lambda check: (check.stage, check.code)))
