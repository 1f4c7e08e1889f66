"""Check many Functions on a few workers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..report.finding import CheckRun, Evidence, Location
from ..report.report import Report
from .outcomes import DEATHS_A_SUBJECT, Found, Options, Outcome, Progress, cases_problem, import_died, of_file, renamed, told
from .targets import Target, TargetError
from .workers import Death, Worker

DEATHS_A_CASE = 3
WORKER_STARTS_IN = 3.0
Watch = Callable[[str, str], None]


class Interrupted(Exception):
    """Raised where Ctrl-C, or `sys.exit` in a handler of a signal, ended a check.

    Attributes:
        outcomes: What was done until then, in the order of the targets.
    """

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__(f"interrupted after {len(outcomes)} subjects")
        self.outcomes = outcomes


def check_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Check every custom derivative of the targets; outcomes come in the order of the targets and their definitions.

    Args:
        targets: What to import.
        options: How to check.
        watch: Called with a subject (or file) and what is being done to it; from several threads.

    Raises:
        TargetError: for a name after ``::`` that its file does not define, and for a device that cannot be used.
        WorkerError: if workers cannot start.
        Interrupted: with what was done until then.
    """
    pool = _Pool(targets, options, watch, check_one)
    try:
        return pool.run()
    except (KeyboardInterrupt, SystemExit) as interruption:
        raise Interrupted(pool.done()) from interruption


def list_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Find every custom derivative of the targets, and its samples, without checking anything."""
    return _Pool(targets, replace(options, only=-1, preload=""), watch, check_one).run()


def describe_targets(targets: Sequence[Target], options: Options, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Write the contract of every custom derivative of the targets; `Outcome.page` holds it."""

    def describe(worker: Worker, found: Found, options: Options, watch: Watch) -> Outcome:
        return _page("contract", worker, found, options, watch)

    return _Pool(targets, replace(options, preload=""), watch, describe).run()


def write_tests(targets: Sequence[Target], options: Options, folder: Path, *, watch: Watch = lambda subject, at: None) -> list[Outcome]:
    """Write the samples of every custom derivative of the targets as a test file; `Outcome.page` holds its text and `Outcome.samples` its name.

    Tensors that are too large for the text are written into `folder`.
    """

    def write(worker: Worker, found: Found, options: Options, watch: Watch) -> Outcome:
        return _page("tests", worker, found, options, watch, folder=str(folder), settings=dict(options.settings))

    return _Pool(targets, replace(options, preload=""), watch, write).run()


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
        return self.done()

    def done(self) -> list[Outcome]:
        """Return what is done so far, in the order of the targets."""
        return [self._outcomes[key] for key in sorted(self._outcomes)]

    def _work(self) -> None:
        """Do what there is to do, with a worker that is started when there is something."""
        with contextlib.ExitStack() as stack:
            worker: Worker | None = None
            while (item := self._next(worker)) is not None:
                if worker is None:
                    worker = stack.enter_context(Worker(self._options.imports))
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
        subjects, problem = find_one(worker, target, self._options)
        rank, world = self._options.share
        if problem is not None and key[0] % world == rank:
            self._outcomes[key] = problem
        mine = [((key[0], i), found) for i, found in enumerate(subjects) if (key[0] + i) % world == rank]
        for _, found in mine:
            self._watch(found.name, "found")
        with self._changed:
            self._waiting += mine


def find_one(worker: Worker, target: Target, options: Options) -> tuple[list[Found], Outcome | None]:
    """Import a file; return its Functions, and what is wrong with it or with its cases.

    Raises:
        TargetError: for a name that the file does not define.
    """
    opened = open_file(worker, target, options)
    if isinstance(opened, Report):
        return [], Outcome(None, opened, imported=not any(f.code in ("PB001", "PB003") for f in opened.findings))
    subjects, problems = opened
    return subjects, None if problems is None else Outcome(None, problems)


def open_file(worker: Worker, target: Target, options: Options) -> tuple[list[Found], Report | None] | Report:
    """Import a file; return its Functions and what is wrong with its cases, or, where it cannot be imported, a report that says so.

    Raises:
        TargetError: for a name that the file does not define.
    """
    answer = worker.open(target, cases=options.cases, declare=options.declare, seed=options.seed, limit=options.timeout)
    if isinstance(answer, Death):
        return import_died(target, answer)
    if "unknown" in answer:
        raise TargetError(answer["unknown"])
    if "import_failed" in answer:
        place = answer["place"]
        location = Location(place[0], place[1]) if place else Location(target.path, 1)
        error = Evidence(answer["import_failed"])
        return of_file(target, "PB001", f"{target.spec} cannot be imported", location, error, answer["output"])
    found = [Found(target, **subject) for subject in answer["subjects"]]
    problems = [cases_problem(target, problem) for problem in answer["problems"]]
    return found, Report().merge(*problems) if problems else None


def check_one(worker: Worker, found: Found, options: Options, watch: Watch) -> Outcome:
    """Check one subject. After a death a new process goes on without the check that was running."""
    if found.skip:
        return Outcome(found, Report((), (CheckRun("PB004", found.name, "skipped", found.skip),), (found.name,)))
    progress = Progress()
    while (death := _attempt(worker, found, options, watch, progress)) is not None:
        progress.deaths.append(death)
        if death.case < 0 or len(progress.deaths) >= DEATHS_A_SUBJECT:
            break
        progress.skip.setdefault(death.case, []).append(death.at)
        if death.at in ("start", "PB002") or sum(d.case == death.case for d in progress.deaths) >= DEATHS_A_CASE:
            progress.given_up.add(death.case)
    return Outcome(found, told(found, options, progress), progress.samples, origin=progress.origin)


def _page(do: str, worker: Worker, found: Found, options: Options, watch: Watch, **work: Any) -> Outcome:
    """Have a page written about one subject."""
    watch(found.name, do)
    page, name, progress = "", "", Progress()
    if (worker.file is None or worker.file != found.target) and isinstance(open_file(worker, found.target, options), Report):
        return Outcome(found, Report(subjects=(found.name,)))
    for message in worker.ask(do, found.name, limit=options.timeout, seed=options.seed, **work):
        if isinstance(message, Death):
            progress.deaths.append(message)
        elif "page" in message:
            page, name = message["page"], message.get("name", "")
    return Outcome(found, told(found, options, progress), [name] if name else [], page=page)


def _attempt(worker: Worker, found: Found, options: Options, watch: Watch, progress: Progress) -> Death | None:
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
            progress.reports[message["case"]] = renamed(Report.from_json(message["report"]), found, options, message["case"])
    return None
