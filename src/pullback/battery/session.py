"""One pass of the battery over one case: order, gates, and the containment of checks that break."""

from __future__ import annotations

import contextlib
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ..capture.calls import paths_from_here
from ..capture.case import Case
from ..capture.frames import is_readers
from ..report import codes
from ..report.clean import clean
from ..report.finding import JSON, CheckRun, Evidence, Finding
from ..report.report import Report
from .base import Check, Skipped, Unsupported, all_checks
from .draws import stream
from .evaluate import UserCodeError
from .guards import guarded
from .meter import Spent
from .probe import Probe, SparseOutput
from .process_state import preserved_state
from .ranks import group_of_one
from .settings import Settings
from .smaller import smaller, wrong_as_given


def run_case(
    case: Case,
    settings: Settings | None = None,
    *,
    announce: Callable[[str], None] = lambda code: None,
    skip: frozenset[str] = frozenset(),
) -> Report:
    """Return the report of the battery on one case.

    Args:
        case: What is called, with what, and what is declared.
        settings: Seed, tiers, selected codes.
        announce: Called with a check's code before it starts, so that a parent process knows what was running when this one dies.
        skip: Codes that are not run (those that ran, or killed the process, before).
    """
    settings = settings or Settings()
    with preserved_state(), paths_from_here(), warnings.catch_warnings(), group_of_one() if settings.distributed > 1 else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        less = None if settings.thorough else smaller(case)
        if less is None:
            return _Run(Probe(case, settings), announce, skip).report()
        report = _Run(Probe(less.case, settings), announce, skip).report()
        if report.ok and _passed(report, "PB501") and wrong_as_given(case, settings):
            return _Run(Probe(case, settings), announce, skip).report()
        return replace(report, environment={**report.environment, "smaller": {report.subjects[0]: less.said}})


def _passed(report: Report, code: str) -> bool:
    return any(run.code == code and run.status == "pass" for run in report.checks)


class _Run:
    """One pass of all checks over one probe."""

    def __init__(self, probe: Probe, announce: Callable[[str], None], skip: frozenset[str]) -> None:
        self.probe = probe
        self.announce = announce
        self.skip = skip
        self.runs: list[CheckRun] = []

    def report(self) -> Report:
        subject = self.probe.target.subject
        with preserved_state():
            base = self._baseline()
        if base is not None:
            self.probe.findings.append(base)
        reported_crash = False
        for check in self._chosen():
            if check.stage > 1 and not reported_crash:
                reported_crash = True
                self._report_crash()
            with preserved_state():
                self._run(check)
        if not reported_crash:
            self._report_crash()
        return Report(tuple(self.probe.findings), tuple(self.runs), (subject,), environment(self.probe.settings))

    def _chosen(self) -> list[Check]:
        settings = self.probe.settings
        return [
            check
            for check in all_checks()
            if check.code not in self.skip
            and check.code not in settings.ignore
            and (not settings.select or check.code in settings.select)
            and (not self.probe.case.only or check.code in self.probe.case.only)
            and (check.tier in settings.tiers or check.code in settings.select)
        ]

    def _baseline(self) -> Finding | None:
        self.announce("PB002")
        with contextlib.suppress(UserCodeError):
            self.probe.weigh()
        error = self.probe.baseline.forward_error
        if error is None:
            return None
        sparse = isinstance(error.error, SparseOutput)
        why = "it returns a sparse tensor" if sparse else "forward refuses the given inputs"
        return _tool_finding(
            self.probe,
            "PB004",
            "note",
            f"{self.probe.target.name} could not be checked: {why}",
            error,
            "Check a function that calls it and returns .to_dense()."
            if sparse
            else "Pass inputs that the forward takes: pb.check(op, (x, ...)) or pullback_cases() in the file.",
        )

    def _report_crash(self) -> None:
        error = self.probe.baseline.backward_error
        if error is None or any(f.code in ("PB601", "PB602", "PB603") for f in self.probe.findings) or "PB002" in self.probe.settings.ignore:
            return
        # No inputs can be to blame for a name that nothing has.
        searched = self.probe.case.origin == "searched"
        nameless = searched and type(error.error) is NameError
        self.probe.findings.append(
            _tool_finding(
                self.probe,
                "PB004" if searched and not nameless else "PB002",
                "warning" if nameless else "note" if searched else "error",
                f"{self.probe.backward_name} raises on inputs that forward accepts",
                error,
                "Mend the error that backward raises; it is shown as your code raised it.",
            )
        )

    def _run(self, check: Check) -> None:
        self.announce(check.code)
        start = time.perf_counter()
        subject = self.probe.target.subject
        status, reason = "pass", ""
        found: list[Finding] = []
        self.probe.generator = stream(*self.probe.origin, check.code)
        try:
            missing = self._missing(check)
            if missing:
                status, reason = "skipped", missing
            else:
                self._collect(check, found)
                reason = self.probe.remarks.get(check.code, "")
        except Spent:
            status, reason = "skipped", f"stopped: one evaluation takes {self.probe.meter.each:.2g} s (--thorough goes on)"
        except Skipped as skipped:
            status, reason = "skipped", str(skipped)
        except Unsupported as refusal:
            status, reason = "unsupported", clean(refusal, limit=200)
        except UserCodeError as error:
            status, reason = "skipped", clean(error, limit=200)
        except Exception as error:
            status, reason = "error", clean(f"{type(error).__name__}: {error}", limit=400)
            self.probe.findings.append(_broke(self.probe, check.code, error))
        if found:
            loud = [f for f in found if f.severity != "note"]
            status = loud[0].status if loud else found[0].status
        self.runs.append(CheckRun(check.code, subject, status, reason, time.perf_counter() - start))  # type: ignore[arg-type]

    def _collect(self, check: Check, found: list[Finding]) -> None:
        """Take what a check finds; what it found before it was stopped counts."""
        meter = self.probe.meter
        limited = meter.sweep() if check.metered and not self.probe.settings.thorough else contextlib.nullcontext()
        try:
            with limited:
                for finding in check.run(self.probe):
                    with meter.free():
                        found.append(guarded(self.probe, finding))
        finally:
            self.probe.findings.extend(found)

    def _missing(self, check: Check) -> str:
        base = self.probe.baseline
        if base.forward_error is not None and check.tier in ("default", "thorough"):
            return "forward does not run on these inputs"
        if "direct" in check.needs and not self.probe.target.direct:
            return "looks at a Function's own arguments; the target is a callable"
        if "function" in check.needs and self.probe.function is None:
            return "looks at one Function class; the target uses none or several"
        if "backward" in check.needs:
            if base.backward_error is not None:
                return "backward raises"
            if not base.outcome or not base.outcome.carrying:
                return "no output carries a gradient"
        if "repeats" in check.needs and not (self.probe.repeats.forward and self.probe.repeats.backward):
            return "results do not repeat under a held random state"
        return ""


def environment(settings: Settings) -> dict[str, JSON]:
    """Return versions and settings that are needed to see a report again."""
    import platform

    from .. import __version__

    return {
        "pullback": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "seed": settings.seed,
        "orders": settings.orders,
        "thorough": settings.thorough,
        "threads": torch.get_num_threads(),
    }


def _tool_finding(probe: Probe, code: str, severity: Any, message: str, error: UserCodeError, fix: str) -> Finding:
    place = probe.forward_location if error.stage == "forward" else probe.backward_location
    where = user_line(error.error)
    return Finding(
        code=code,
        name=codes.name_of(code),
        severity=severity,
        status="fail" if code == "PB002" else "skipped",
        subject=probe.target.subject,
        message=message,
        location=replace(place, line=where[1], end_line=None) if place and where and where[0].endswith(place.path) else place,
        evidence=(Evidence(f"{error.stage} raised", got=clean(error.short, limit=500)),),
        fix=fix,
        repro=probe.repro(code),
    )


def user_line(error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of the checked code in an exception's traceback."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_readers(f.filename)]
    return (frames[-1].filename, frames[-1].lineno or 1) if frames else None


def _broke(probe: Probe, code: str, error: Exception) -> Finding:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Finding(
        code="PB008",
        name=codes.name_of("PB008"),
        severity="error",
        status="error",
        subject=probe.target.subject,
        message=f"the check {code} itself broke on {probe.target.name}; nothing is known about that fault",
        evidence=(Evidence(f"{type(error).__name__} at {last.name}, line {last.lineno}", got=clean(error, limit=500)),),
        fix=f"Please report this; `--ignore {code}` leaves the check out meanwhile.",
        repro=probe.repro(code),
    )
