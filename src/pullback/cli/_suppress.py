"""What a report leaves out: findings that a comment on the class ignores, and findings that a baseline holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..linter.suppress import Suppression, read_text, suppressions, unused
from ..report.finding import Finding, Location
from ..report.report import RAN, Report


def suppress(report: Report, subject: str, place: Location | None) -> tuple[Report, int]:
    """Return a subject's report without what `# pullback: ignore[PB604] reason` on its class line ignores, and the number of findings left out.

    A comment that ignores nothing although its checks ran becomes a PB006 finding. A `noqa` is for what reads source only, and does not count.
    """
    comments = _comments(place) if place else []
    if place is None or not comments:
        return report, 0
    kept = [finding for finding in report.findings if not _ignored(finding, comments)]
    ran = frozenset(run.code for run in report.checks if run.status in RAN)
    idle = unused(place.path, subject, comments, ran)
    return replace(report, findings=(*kept, *idle)), len(report.findings) - len(kept)


def _comments(place: Location) -> list[Suppression]:
    """Return the comments on the head of what is defined at a place."""
    try:
        found = suppressions(read_text(Path(place.path)))
    except (OSError, ValueError):
        return []
    return [comment for comment in found if not comment.foreign and comment.first <= place.line <= comment.last]


def _ignored(finding: Finding, comments: list[Suppression]) -> bool:
    covering = [comment for comment in comments if not comment.words or finding.code in comment.codes]
    for comment in covering:
        comment.used.add(finding.code)
    return bool(covering)


def known_before(report: Report, baseline: Iterable[Finding]) -> tuple[Report, int]:
    """Return the report without findings that the baseline holds too, and their number.

    A finding is known by its code and subject. What the tool says of itself (PB0xx) is never known before: nothing was checked then.
    """
    known = {(f.code, f.subject) for f in baseline if not f.code.startswith("PB0")}
    kept = report.filter(lambda f: (f.code, f.subject) not in known)
    return kept, len(report.findings) - len(kept.findings)
