"""Check many Functions on a few workers, and turn what their processes said, or how they died, into one report."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from ..report.clean import clean
from ..report.codes import name_of, registry
from ..report.finding import JSON, CheckRun, Evidence, Finding, Location, Severity
from ..report.report import Report
from .targets import Target, TargetError
from .workers import Death, Worker

DEATHS_A_CASE = 3
DEATHS_A_SUBJECT = 6
WORKER_STARTS_IN = 3.0
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
        preload: Module that a worker imports once for all its checks.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    cases: str | None = None
    declare: Mapping[str, Any] = field(default_factory=dict)
    only: int | None = None
    timeout: float = 60.0
    jobs: int = 1
    battery: str = "pullback.battery.check"
    preload: str = "pullback.battery.warm"

    @property
    def seed(self) -> int:
        """The seed of everything."""
        return int(self.settings.get("seed", 0))


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


Watch = Callable[[str, str], None]


def check_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Check every custom derivative of the targets; outcomes come in the order of the targets and their definitions.

    Args:
        targets: What to import.
        options: How to check.
        watch: Called with a subject (or file) and what is being done to it; from several threads.

    Raises:
        TargetError: for a name after ``::`` that its file does not define, and for a device that cannot be used.
        WorkerError: if workers cannot start.
    """
    return _Pool(targets, options, watch, _check).run()


def list_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Find every custom derivative of the targets, and its samples, without checking anything."""
    return _Pool(targets, replace(options, only=-1, preload=""), watch, _check).run()


def describe_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Write the contract of every custom derivative of the targets; `Outcome.page` holds it."""
    return _Pool(targets, replace(options, preload=""), watch, _describe).run()


Job = Callable[[Worker, Found, Options, Watch], Outcome]


class _Pool:
    """Work for a few threads, each with a worker: files to open, and their Functions to check."""

    def __init__(self, targets: Sequence[Target], options: Options, watch: Watch, job: Job) -> None:
        self._options, self._watch, self._job = options, watch, job
        self._files = list(enumerate(targets))
        self._waiting: list[tuple[tuple[int, int], Found]] = []
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._workers: list[Worker] = []
        self._opening = 0
        self._begun = False
        self._changed = threading.Condition()
        self._stopped = False

    def run(self) -> list[Outcome]:
        count = max(1, self._options.jobs)
        with ThreadPoolExecutor(count) as threads:
            futures = [threads.submit(self._work) for _ in range(count)]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stop()
                raise
        return [self._outcomes[key] for key in sorted(self._outcomes)]

    def _work(self) -> None:
        """Do what there is to do, with a worker that is started when there is something."""
        with contextlib.ExitStack() as stack:
            worker: Worker | None = None
            while (item := self._next(worker)) is not None:
                if worker is None:
                    worker = stack.enter_context(Worker(self._options.preload))
                    self._workers.append(worker)
                self._do(worker, *item)

    def _do(self, worker: Worker, key: tuple[int, int], work: Target | Found) -> None:
        if isinstance(work, Found):
            self._outcomes[key] = self._job(worker, work, self._options, self._watch)
            self._watch(work.name, "done")
            with self._changed:
                if not self._waiting:
                    self._changed.notify_all()
            return
        try:
            self._open(worker, key, work)
        finally:
            with self._changed:
                self._opening -= 1
                self._changed.notify_all()

    def _next(self, worker: Worker | None) -> tuple[tuple[int, int], Target | Found] | None:
        """Return a Function of the open file, else another file, else a Function of any file; None when all is done.

        Functions that are only waiting get another worker when they have waited for about as long as its start takes.
        """
        with self._changed:
            patient = worker is None and self._begun
            while not self._stopped:
                mine = next((i for i, (_, found) in enumerate(self._waiting) if worker and found.target == worker.file), None)
                if mine is not None:
                    return self._waiting.pop(mine)
                if self._files:
                    self._opening += 1
                    self._begun = True
                    index, target = self._files.pop(0)
                    return (index, -1), target
                if self._waiting and not patient:
                    return self._waiting.pop(0)
                if not self._opening and not self._waiting:
                    return None
                started = self._changed.wait(WORKER_STARTS_IN)
                patient = patient and (started or not self._waiting)
            return None

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.kill()

    def _open(self, worker: Worker, key: tuple[int, int], target: Target) -> None:
        self._watch(target.spec, "import")
        opened = open_file(worker, target, self._options)
        if isinstance(opened, Report):
            self._outcomes[key] = Outcome(None, opened, imported=not any(f.code in ("PB001", "PB003") for f in opened.findings))
            return
        subjects, problems = opened
        if problems is not None:
            self._outcomes[key] = Outcome(None, problems)
        for found in subjects:
            self._watch(found.name, "found")
        with self._changed:
            self._waiting += [((key[0], i), found) for i, found in enumerate(subjects)]


def open_file(worker: Worker, target: Target, options: Options) -> tuple[list[Found], Report | None] | Report:
    """Import a file; return its Functions and what is wrong with its cases, or, where it cannot be imported, a report that says so.

    Raises:
        TargetError: for a name that the file does not define.
    """
    answer = worker.open(target, cases=options.cases, declare=options.declare, seed=options.seed, limit=options.timeout)
    if isinstance(answer, Death):
        return _import_died(target, answer)
    if "unknown" in answer:
        raise TargetError(answer["unknown"])
    if "import_failed" in answer:
        place = answer["place"]
        location = Location(place[0], place[1]) if place else Location(target.path, 1)
        error = Evidence(answer["import_failed"])
        return _of_file(target, "PB001", f"{target.spec} cannot be imported", location, error, answer["output"])
    found = [Found(target, **subject) for subject in answer["subjects"]]
    problems = [_cases_problem(target, problem) for problem in answer["problems"]]
    return found, Report().merge(*problems) if problems else None


def _import_died(target: Target, death: Death) -> Report:
    what = "the import of" if death.at == "import" else f"{death.at} in"
    code, how = ("PB003", "did not end") if death.kind == "timeout" else ("PB001", "ended the process")
    if death.kind == "broke":
        code, how = "PB008", "broke in pullback itself"
    return _of_file(target, code, f"{what} {target.spec} {how}: {death.how}", death.place or Location(target.path, 1), None, death.output)


def _cases_problem(target: Target, problem: Mapping[str, Any]) -> Report:
    path, line = problem["place"]
    return _of_file(target, problem["code"], problem["message"], Location(path or target.path, line or 1), None, "")


def _of_file(target: Target, code: str, message: str, location: Location, evidence: Evidence | None, output: str) -> Report:
    finding = _tool_finding(code, target.spec, message, location, (evidence,) if evidence else (), output)
    return Report((finding,), (CheckRun(code, target.spec, "fail", "cannot be imported" if code == "PB001" else message),), (target.spec,))


def _tool_finding(
    code: str, subject: str, message: str, location: Location | None, evidence: tuple[Evidence, ...], output: str, severity: Severity | None = None
) -> Finding:
    kind = "trace" if code == "PB008" else "output"
    attachments: dict[str, JSON] = {kind: clean(output[-_OUTPUT_KEPT:], keep_newlines=True)} if output.strip() else {}
    status = "error" if code == "PB008" else "fail"
    return Finding(
        code, name_of(code), severity or registry()[code].severity, status, subject, message, location, evidence=evidence, attachments=attachments
    )


@dataclass(slots=True)
class _Progress:
    """What is done of one subject, over all the processes that it took."""

    reports: dict[int, Report] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    skip: dict[int, list[str]] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    samples: list[str] = field(default_factory=list)
    origin: str = ""


def _check(worker: Worker, found: Found, options: Options, watch: Watch) -> Outcome:
    """Check one subject. After a death a new process goes on without the check that was running."""
    if found.skip:
        return Outcome(found, Report((), (CheckRun("PB004", found.name, "skipped", found.skip),), (found.name,)))
    progress = _Progress()
    while (death := _attempt(worker, found, options, watch, progress)) is not None:
        progress.deaths.append(death)
        if death.case < 0 or len(progress.deaths) >= DEATHS_A_SUBJECT:
            break
        progress.skip.setdefault(death.case, []).append(death.at)
        if death.at in ("start", "PB002") or sum(d.case == death.case for d in progress.deaths) >= DEATHS_A_CASE:
            progress.given_up.add(death.case)
    return Outcome(found, _told(found, options, progress), progress.samples, origin=progress.origin)


def _describe(worker: Worker, found: Found, options: Options, watch: Watch) -> Outcome:
    """Write the contract of one subject."""
    watch(found.name, "contract")
    page, progress = "", _Progress()
    for message in worker.ask("contract", found.name, limit=options.timeout, seed=options.seed):
        if isinstance(message, Death):
            progress.deaths.append(message)
        elif "page" in message:
            page = message["page"]
    return Outcome(found, _told(found, options, progress), page=page)


def _attempt(worker: Worker, found: Found, options: Options, watch: Watch, progress: _Progress) -> Death | None:
    if worker.file != found.target:
        reopened = open_file(worker, found.target, options)
        if isinstance(reopened, Report):
            return Death("crash", "its file could not be imported a second time", "import")
    done = sorted({*progress.reports, *progress.given_up} - {-1})
    skip = {str(case): codes for case, codes in progress.skip.items()}
    work = {"settings": options.settings, "skip": skip, "done": done, "only": options.only, "battery": options.battery}
    for message in worker.ask("check", found.name, limit=options.timeout, **work):
        if isinstance(message, Death):
            return message
        if "refused" in message:
            raise TargetError(message["refused"])
        if "at" in message:
            watch(found.name, message["at"])
        elif "samples" in message:
            progress.samples, progress.origin = message["samples"], message["origin"]
        elif "report" in message:
            progress.reports[message["case"]] = _renamed(Report.from_json(message["report"]), found, options, message["case"])
    return None


def _renamed(report: Report, found: Found, options: Options, case: int) -> Report:
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
    parts += [part for key in ("device", "dtype") if options.settings.get(key) for part in (f"--{key}", str(options.settings[key]))]
    return shlex.join([*parts, "--seed", str(options.seed)])


def _told(found: Found, options: Options, progress: _Progress) -> Report:
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


def _death_report(found: Found, options: Options, progress: _Progress) -> Report:
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


def _death_finding(found: Found, options: Options, progress: _Progress, deaths: list[Death]) -> Finding:
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


def _during(death: Death, progress: _Progress) -> str:
    if death.at == "inputs":
        return "while sample inputs were made"
    if death.at in ("start", "PB002"):
        what = "the first forward and backward"
    else:
        what = f"{death.at} {name_of(death.at)}" if death.at in registry() else death.at
    sample = f" on sample {death.case}: {progress.samples[death.case]}" if 0 <= death.case < len(progress.samples) else ""
    return f"during {what}{sample}"
