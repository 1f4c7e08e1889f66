"""What is known about each subject, and its report: from what its processes said, or from how they died."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..report.clean import clean
from ..report.codes import name_of, registry
from ..report.finding import JSON, CheckRun, Evidence, Finding, Location
from ..report.render.summary import shown_path
from ..report.report import Report
from .targets import Target
from .workers import Death

DEATHS_A_SUBJECT = 6
_OUTPUT_KEPT = 4000
_TOOL_CODES = {"crash": "PB002", "timeout": "PB003", "broke": "PB008"}


@dataclass(frozen=True, slots=True)
class Options:
    """How to check: what every worker is told.

    Args:
        settings: Fields of the battery's `Settings`: seed, orders, thorough, select, ignore, dtype, device.
        cases: A file with another `pullback_cases()`.
        declare: `[tool.pullback.declare]`.
        only: The number of the one sample to check.
        timeout: Seconds for one check, and for one import.
        jobs: Number of workers.
        battery: Module that provides `run_case` and `Settings`.
        preload: Module that a worker imports once for all its checks; None for the one that the selected checks need.
        share: The number of this process among those that share the work, and how many they are.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    cases: str | None = None
    declare: Mapping[str, Any] = field(default_factory=dict)
    only: int | None = None
    timeout: float = 60.0
    jobs: int = 1
    battery: str = "pullback.battery.check"
    preload: str | None = None
    share: tuple[int, int] = (0, 1)

    @property
    def seed(self) -> int:
        """The seed of everything."""
        return int(self.settings.get("seed", 0))

    @property
    def imports(self) -> str:
        """The module that a worker imports once for all its checks."""
        if self.preload is not None:
            return self.preload
        selected = self.settings.get("select") or registry()
        return "pullback.battery.warm" if any(registry()[code].compiler for code in selected) else "pullback.battery.warm_eager"


@dataclass(frozen=True, slots=True)
class Found:
    """One Function as its file's process described it."""

    target: Target
    name: str
    short: str
    path: str | None = None
    line: int | None = None
    skip: str = ""

    @property
    def location(self) -> Location | None:
        """Where it is defined."""
        return Location(self.path, self.line or 1) if self.path else None


@dataclass(slots=True)
class Outcome:
    """All that is known about one Function, or about a file that could not be imported.

    Args:
        found: The Function; None for a file.
        report: What was found.
        samples: One line for each sample, numbered from 0.
        imported: Whether its file could be imported.
        origin: Who chose the samples: ``"case"`` or ``"searched"``.
        page: Its contract, where that was asked for.
    """

    found: Found | None
    report: Report
    samples: list[str] = field(default_factory=list)
    imported: bool = True
    origin: str = ""
    page: str = ""


@dataclass(slots=True)
class Progress:
    """What is done of one subject, over all the processes that it took."""

    reports: dict[int, Report] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    skip: dict[int, list[str]] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    samples: list[str] = field(default_factory=list)
    origin: str = ""


def import_died(target: Target, death: Death) -> Report:
    """Return the report of a file whose import ended its process, or did not end."""
    what = "the import of" if death.at == "import" else f"{death.at} in"
    code, how = ("PB003", "did not end") if death.kind == "timeout" else ("PB001", "ended the process")
    if death.kind == "broke":
        code, how = "PB008", "broke in pullback itself"
    return of_file(target, code, f"{what} {target.spec} {how}: {death.how}", death.place or Location(target.path, 1), None, death.output)


def cases_problem(target: Target, problem: Mapping[str, Any]) -> Report:
    """Return the report of a `pullback_cases()` that raised or yielded something else than cases."""
    path, line = problem["place"]
    return of_file(target, problem["code"], problem["message"], Location(path or target.path, line or 1), None, "")


def of_file(target: Target, code: str, message: str, location: Location, evidence: Evidence | None, output: str) -> Report:
    """Return a report with one finding about a file, in which nothing could be checked."""
    finding = _tool_finding(code, target.spec, message, location, (evidence,) if evidence else (), output)
    return Report((finding,), (CheckRun(code, target.spec, "fail", "cannot be imported" if code == "PB001" else message),), (target.spec,))


def _tool_finding(code: str, subject: str, message: str, location: Location | None, evidence: tuple[Evidence, ...], output: str) -> Finding:
    kind = "trace" if code == "PB008" else "output"
    attachments: dict[str, JSON] = {kind: clean(output[-_OUTPUT_KEPT:], keep_newlines=True)} if output.strip() else {}
    status = "error" if code == "PB008" else "fail"
    if location is not None:
        location = replace(location, path=shown_path(location.path))
    return Finding(code, name_of(code), registry()[code].severity, status, subject, message, location, evidence=evidence, attachments=attachments)


def renamed(report: Report, found: Found, options: Options, case: int) -> Report:
    """Return the report under the subject's own name, with a command for each finding that shows it again."""
    return Report(
        tuple(
            replace(f, subject=found.name, repro=_command(found, options, f.code, case), location=f.location or found.location)
            for f in report.findings
        ),
        tuple(replace(run, subject=found.name) for run in report.checks),
        (found.name,),
        report.environment,
    )


def _command(found: Found, options: Options, code: str, case: int) -> str | None:
    if code.startswith("PB0") and code not in ("PB002", "PB003", "PB008"):
        return None
    parts = ["pullback", "check", f"{found.target.spec}::{found.short}"]
    if not code.startswith("PB0"):
        parts += ["--select", code]
    if case >= 0:
        parts += ["--case", str(case)]
    if options.cases:
        parts += ["--cases", options.cases]
    parts += [part for key in ("device", "dtype", "distributed") if options.settings.get(key) for part in (f"--{key}", str(options.settings[key]))]
    parts += ["--orders", "2"] if options.settings.get("orders") == 2 else []
    parts += ["--thorough"] if options.settings.get("thorough") else []
    return shlex.join([*parts, "--seed", str(options.seed)])


def told(found: Found, options: Options, progress: Progress) -> Report:
    """Return all that the processes of one subject have shown, deaths first."""
    reports = [progress.reports[case] for case in sorted(progress.reports)]
    deaths = _death_report(found, options, progress) if progress.deaths else Report(subjects=(found.name,))
    return _strongest(Report(subjects=(found.name,)).merge(deaths, *reports))


def _strongest(report: Report) -> Report:
    """Return the report with one entry for each check: over several samples the worst status counts, and times add up."""
    order = ("fail", "error", "waste", "declared", "pass", "unsupported", "skipped")
    runs: dict[str, CheckRun] = {}
    for run in report.checks:
        known = runs.get(run.code)
        if known is None:
            runs[run.code] = run
            continue
        worst = min(known, run, key=lambda r: order.index(r.status))
        runs[run.code] = replace(worst, seconds=known.seconds + run.seconds)
    return replace(_one_finding_a_fault(report), checks=tuple(runs.values()))


def _one_finding_a_fault(report: Report) -> Report:
    """Return the report with findings that several samples share told once, from the first sample that shows them."""
    seen: dict[tuple[str, str, str], Finding] = {}
    for finding in report.findings:
        seen.setdefault((finding.code, finding.severity, finding.message), finding)
    return replace(report, findings=tuple(seen.values()))


def _death_report(found: Found, options: Options, progress: Progress) -> Report:
    groups: dict[tuple[str, str, Location | None], list[Death]] = {}
    for death in progress.deaths:
        groups.setdefault((death.kind, death.how, death.place), []).append(death)
    findings = [_death_finding(found, options, progress, deaths) for deaths in groups.values()]
    runs = [CheckRun(_code_of(d), found.name, "error" if d.kind == "broke" else "fail", d.how) for d in progress.deaths]
    if progress.given_up or len(progress.deaths) >= DEATHS_A_SUBJECT:
        runs.append(CheckRun("PB002", found.name, "skipped", "the process died too often: the rest was not tried"))
    return Report(tuple(findings), tuple(runs), (found.name,))


def _code_of(death: Death) -> str:
    return death.at if death.at in registry() else _TOOL_CODES[death.kind]


def _death_finding(found: Found, options: Options, progress: Progress, deaths: list[Death]) -> Finding:
    first = deaths[0]
    code = _TOOL_CODES[first.kind]
    evidence = tuple(Evidence(_during(death, progress)) for death in deaths)
    if first.kind == "broke":
        message = f"pullback's own check broke on {found.short}: {first.how}"
    elif first.kind == "timeout":
        message = f"{found.short} does not end: {first.how}"
    else:
        message = f"{found.short} ends the process: {first.how}"
    if first.kind != "broke" and (first.at == "inputs" or progress.origin == "searched"):
        code, message = "PB004", f"{message} on inputs that the search chose; give one call that works"
    finding = _tool_finding(code, found.name, message, first.place or found.location, evidence, first.output)
    return replace(finding, repro=_command(found, options, code, first.case))


def _during(death: Death, progress: Progress) -> str:
    if death.at == "inputs":
        return "while sample inputs were made"
    if death.at in ("start", "PB002"):
        what = "the first forward and backward"
    else:
        what = f"{death.at} {name_of(death.at)}" if death.at in registry() else death.at
    sample = f" on sample {death.case}: {progress.samples[death.case]}" if 0 <= death.case < len(progress.samples) else ""
    return f"during {what}{sample}"
