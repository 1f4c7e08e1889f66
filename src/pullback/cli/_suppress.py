"""`# pullback: ignore[PB604] reason` on the line of a class."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..report.codes import UnknownCode, name_of, registry, resolve
from ..report.finding import Finding, Location
from ..report.report import RAN, Report

_COMMENT = re.compile(r"#\s*pullback:\s*ignore\[(?P<words>[^\]]*)\]")
_LINT = ("PB1", "PB2", "PB3", "PB4")


@dataclass(frozen=True, slots=True)
class Suppression:
    """One word of a comment: what it stands for, and where."""

    word: str
    codes: frozenset[str]
    location: Location


def suppress(report: Report, subject: str, location: Location | None) -> tuple[Report, int]:
    """Return a subject's report without the findings that a comment on its class line ignores, and their number.

    A word that ignores nothing although its checks ran becomes PB006, one that is no code PB005.
    """
    if location is None:
        return report, 0
    suppressions, problems = _read(subject, location)
    kept = [f for f in report.findings if not any(f.code in s.codes for s in suppressions)]
    found = {f.code for f in report.findings}
    ran = {run.code for run in report.checks if run.status in RAN}
    unused = [_unused(s, subject) for s in suppressions if s.codes & ran and not s.codes & found]
    return replace(report, findings=(*kept, *problems, *unused)), len(report.findings) - len(kept)


def _read(subject: str, location: Location) -> tuple[list[Suppression], list[Finding]]:
    match = _COMMENT.search(_class_line(location))
    suppressions: list[Suppression] = []
    problems: list[Finding] = []
    for word in _words(match["words"]) if match else ():
        try:
            codes = frozenset(code for code in resolve([word]) if not code.startswith(_LINT))
        except UnknownCode as error:
            problems.append(_tool("PB005", subject, str(error), location, "correct the code in the comment"))
            continue
        suppressions.append(Suppression(word, codes, location))
    return suppressions, problems


def _class_line(location: Location) -> str:
    """Return the line of the definition; a decorator may stand above it."""
    for number in range(location.line, location.line + 10):
        line = linecache.getline(location.path, number)
        if not line.lstrip().startswith(("@", "#")):
            return line
    return ""


def _words(text: str) -> Iterator[str]:
    yield from (word.strip() for word in text.split(",") if word.strip())


def _unused(suppression: Suppression, subject: str) -> Finding:
    message = f"`# pullback: ignore[{suppression.word}]` suppresses nothing"
    return _tool("PB006", subject, message, suppression.location, f"remove {suppression.word} from the comment")


def _tool(code: str, subject: str, message: str, location: Location, fix: str) -> Finding:
    return Finding(code, name_of(code), registry()[code].severity, "fail", subject, message, location, fix=fix)


def known_before(report: Report, baseline: Iterable[Finding]) -> tuple[Report, int]:
    """Return the report without findings that the baseline holds too, and their number.

    A finding is known by its code and subject. What the tool says of itself (PB0xx) is never known before: nothing was checked then.
    """
    known = {(f.code, f.subject) for f in baseline if not f.code.startswith("PB0")}
    kept = report.filter(lambda f: (f.code, f.subject) not in known)
    return kept, len(report.findings) - len(kept.findings)
