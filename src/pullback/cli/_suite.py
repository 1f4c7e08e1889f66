"""The battery for a test suite: Functions are found at once and checked one at a time, on one worker, with `[tool.pullback]` as settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..battery.outcomes import Found, Options, Outcome
from ..battery.pool import check_one, find_one
from ..battery.targets import parse_targets
from ..battery.workers import Worker
from ..report.codes import Code, registry, resolve
from ..report.finding import SEVERITIES, Finding, Location
from ..report.report import RAN, Report
from ._config import configuration
from ._suppress import known_before, suppress

_SETTINGS = {"seed": 0, "orders": 1, "thorough": False, "dtype": None, "device": None, "distributed": 0}
RUNS = "PB002"


@dataclass(frozen=True, slots=True)
class Policy:
    """What `[tool.pullback]` says about checks.

    Args:
        options: How to check.
        fail_on: Least severity that fails.
        strict: Whether a Function without sample inputs fails.
        known: Findings of the baseline.
    """

    options: Options
    fail_on: str = "warning"
    strict: bool = False
    known: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the policy of the nearest pyproject.toml.

        Raises:
            click.UsageError: for a broken configuration.
            pullback.report.codes.UnknownCode: for an unknown code or name in it.
            ValueError: for a baseline that is no report.
        """
        path, table = configuration(folder)
        root = path.parent if path else folder
        settings = {key: table.get(key, default) for key, default in _SETTINGS.items()}
        settings |= {key: sorted(chosen(table.get(key, ()))) for key in ("select", "ignore")}
        cases = str(root / table["cases"]) if "cases" in table else None
        options = Options(settings, cases, table.get("declare", {}), timeout=float(table.get("timeout", 60.0)))
        known = Report.from_json((root / table["baseline"]).read_text(encoding="utf-8")).findings if "baseline" in table else ()
        return cls(options, table.get("fail-on", "warning"), bool(table.get("strict", False)), known)

    def grave(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings that fail a test."""
        least = SEVERITIES.index(self.fail_on)  # type: ignore[arg-type]
        return [f for f in findings if SEVERITIES.index(f.severity) <= least or (self.strict and f.code == "PB004")]

    def left(self, report: Report, subject: str, place: Location | None) -> Report:
        """Return what comments on the class line and the baseline leave of a report."""
        report, _ = suppress(report, subject, place)
        return known_before(report, self.known)[0] if self.known else report

    def codes(self) -> list[Code]:
        """Return the checks that run, in order of their codes."""
        settings = self.options.settings
        tiers = {"default"} | ({"thorough"} if settings["thorough"] else set()) | ({"distributed"} if settings["distributed"] else set())
        tiers |= {"gpu"} if str(settings["device"] or "").startswith("cuda") else set()
        checks = [c for c in registry().values() if Path(c.path).parent.name == "checks" and (c.tier in tiers or c.code in settings["select"])]
        return [c for c in checks if c.code not in settings["ignore"] and (not settings["select"] or c.code in settings["select"])]


def chosen(words: str | Iterable[str]) -> frozenset[str]:
    """Return the codes meant by codes, names and families, in one string or several, separated by commas.

    Raises:
        pullback.report.codes.UnknownCode: for an unknown word.
    """
    texts = [words] if isinstance(words, str) else words
    return resolve(word.strip() for text in texts for word in text.split(",") if word.strip())


@dataclass(slots=True)
class Suite:
    """The Functions of some targets, each checked when it is asked for the first time.

    Args:
        policy: How they are checked, and what fails.
    """

    policy: Policy
    _reports: dict[str, Report] = field(default_factory=dict)
    _worker: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _started: list[Worker] = field(default_factory=list)

    def find(self, specs: Sequence[str]) -> Iterator[Outcome]:
        """Yield each Function of the targets, and each file that cannot be imported.

        Raises:
            pullback.battery.targets.TargetError: for a target that does not exist.
            pullback.battery.workers.WorkerError: if the worker cannot start.
        """
        for target in parse_targets(specs):
            subjects, problem = find_one(self._one_worker(), target, self.policy.options)
            if problem is not None:
                yield problem
            yield from (Outcome(found, Report(subjects=(found.name,))) for found in subjects)

    def report(self, found: Found) -> Report:
        """Return the report on one Function."""
        if found.name not in self._reports:
            outcome = check_one(self._one_worker(), found, self.policy.options, lambda subject, at: None)
            self._reports[found.name] = self.policy.left(outcome.report, found.name, found.location)
        return self._reports[found.name]

    def _one_worker(self) -> Worker:
        if not self._started:
            self._started.append(self._worker.enter_context(Worker(self.policy.options.imports)))
        return self._started[0]

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._started.clear()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a report says under one code.

    Args:
        grave: Findings that fail the test.
        notes: The others.
        skipped: Why nothing was judged; empty where something was.
    """

    grave: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    skipped: str = ""


def verdict(report: Report, code: str, policy: Policy) -> Verdict:
    """Return what a report says under one code; under `RUNS`, what the tool itself had to say: whether the op runs at all."""
    runs = code == RUNS
    found = [f for f in report.findings if (f.code.startswith("PB0") if runs else f.code == code)]
    grave = policy.grave(found)
    notes = tuple(f for f in found if f not in grave)
    if grave:
        return Verdict(tuple(grave), notes)
    if runs:
        return Verdict((), notes, _not_checked(report))
    return Verdict((), notes, _why_nothing(report, code))


def _not_checked(report: Report) -> str:
    if any(run.status in RAN for run in report.checks):
        return ""
    return next((f.message for f in report.findings if f.code == "PB004"), "") or next(
        (run.reason for run in report.checks if run.reason), "nothing was checked"
    )


def _why_nothing(report: Report, code: str) -> str:
    run = next((run for run in report.checks if run.code == code), None)
    if run is None:
        return _not_checked(report) or f"did not run; see [{label(registry()[RUNS])}]"
    if run.status == "skipped":
        return run.reason or "skipped"
    if run.status == "unsupported":
        return f"not supported: {run.reason}" if run.reason else "not supported"
    own = any(f.code == code for f in report.findings)
    if run.status == "error" or (run.status == "fail" and not own and run.reason):
        return f"{run.reason}; see [{label(registry()[RUNS])}]"
    return ""


def label(code: Code) -> str:
    """Return a code as it stands in a test's name: ``PB604-strided-grad-output``."""
    return f"{code.code}-{code.name}"


def run_cases(cases: Sequence[Any], policy: Policy, options: Mapping[str, Any]) -> Report:
    """Return the report on cases, in this process.

    Args:
        cases: What `pb.case` returns.
        policy: The settings, over which `options` are laid.
        options: Some of select, ignore, orders, thorough, seed, dtype and device.
    """
    from ..battery.session import run_case
    from ..capture.calls import resolve_target

    settings = battery_settings(policy, options)
    reports = []
    for case in cases:
        target = resolve_target(case.target)
        reports.append(policy.left(run_case(case, settings), target.subject, target.location))
    return Report().merge(*reports)


def battery_settings(policy: Policy, options: Mapping[str, Any]) -> Any:
    """Return the battery's `Settings`.

    Raises:
        TypeError: for an option that is none.
        pullback.report.codes.UnknownCode: for an unknown word in select or ignore.
    """
    import torch

    from ..battery.settings import Settings

    unknown = options.keys() - {"select", "ignore", "orders", "thorough", "seed", "dtype", "device"}
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; the options are select, ignore, orders, thorough, seed, dtype and device")
    values = {**policy.options.settings, **options}
    values["ignore"] = chosen(policy.options.settings["ignore"]) | chosen(options.get("ignore", ()))
    values["select"] = chosen(values["select"])
    values["dtype"] = getattr(torch, values["dtype"]) if values["dtype"] else None
    return Settings(**values)
