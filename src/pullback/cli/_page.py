"""The page of a check: its findings, and for every subject at fault what there is to see of the sample that shows it."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..battery.outcomes import Options, Outcome
from ..report.render.html import page_of, render
from ..report.report import Report
from ._output import emit

if TYPE_CHECKING:
    from ..capture.case import Case

SUBJECTS = 12
_CASE = re.compile(r"--case (\d+)")


def write_page(report: Report, outcomes: Sequence[Outcome], options: Options, output: Path | None) -> None:
    """Write the page of a report to a file or to standard output.

    Each subject is looked at by a process of its own: code at fault may end its process, or not end at all. One that does is left out.
    """
    at_fault = [outcome for outcome in outcomes if outcome.found and outcome.samples and outcome.report.worst() in ("error", "warning")]
    with ThreadPoolExecutor(options.jobs) as pool:
        sections = [section for found in pool.map(lambda outcome: _sections(outcome, options), at_fault[:SUBJECTS]) for section in found]
    emit(render(page_of(report, sections)), output)


def write_page_of_cases(report: Report, cases: Iterable[Case], seed: int, output: Path | None) -> None:
    """Write the page of a report and of samples, whose code is run in this process; what cannot be looked at is left out."""
    from .see import data, look

    sections: list[dict[str, Any]] = []
    for case in itertools.islice(cases, SUBJECTS):
        with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
            sections += sections_of(data(look(case, seed)))
    emit(render(page_of(report, sections)), output)


def sections_of(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sections of a page from what `pullback see` writes as JSON."""
    return [{**section, "subject": seen["subject"]} for section in (seen["trace"], seen["saved"], seen["graph"]) if section]


def _sections(outcome: Outcome, options: Options) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(_command(outcome, options), stdin=subprocess.DEVNULL, capture_output=True, timeout=options.timeout, check=True)
        return sections_of(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _command(outcome: Outcome, options: Options) -> list[str]:
    assert outcome.found is not None
    cases = ["--cases", options.cases] if options.cases else []
    spec = f"{outcome.found.target.spec}::{outcome.found.short}"
    number = options.only if options.only is not None else _case(outcome)
    return [
        sys.executable,
        "-m",
        "pullback",
        "see",
        "--in-process",
        spec,
        "--case",
        str(number),
        "--seed",
        str(options.seed),
        "--output-format",
        "json",
        *cases,
    ]


def _case(outcome: Outcome) -> int:
    """Return the sample that the first grave finding says to look at."""
    repros: Iterable[str] = (f.repro for f in outcome.report.findings if f.severity != "note" and f.repro)
    return next((int(match[1]) for match in map(_CASE.search, repros) if match), 0)
