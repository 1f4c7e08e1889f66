"""Baselines: findings that an earlier JSON report holds are not reported again; new ones are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..report.finding import Finding
from ..report.report import Report


class BaselineError(ValueError):
    """Raised for a file that is not a report."""


def key(finding: Finding) -> tuple[str, str, str, str]:
    """Return what identifies a finding across unrelated edits: code, file, subject and message, not the line."""
    path = Path(finding.location.path).as_posix() if finding.location else ""
    return finding.code, path, finding.subject, finding.message


def read(path: Path) -> Counter[tuple[str, str, str, str]]:
    """Return the findings of a report written with `--output-format json`, with their number.

    Raises:
        BaselineError: if the file is not such a report.
    """
    try:
        return Counter(key(f) for f in Report.from_json(path.read_text(encoding="utf-8")).findings)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BaselineError(f"{path}: {error}. Write one with --output-format json --output {path}") from error


def new(findings: Iterable[Finding], known: Counter[tuple[str, str, str, str]]) -> tuple[Finding, ...]:
    """Return the findings that the baseline does not hold, each known one as often as it was seen."""
    left = Counter(known)
    kept = []
    for finding in findings:
        if left[key(finding)] > 0:
            left[key(finding)] -= 1
        else:
            kept.append(finding)
    return tuple(kept)
