"""The report as one line a finding, for editors and grep: ``path:line:column: code severity name: message``."""

from __future__ import annotations

from ..clean import clean
from ..finding import Finding
from ..report import Report
from .summary import summary_line


def render(report: Report) -> str:
    """Return one line for each finding, then the summary line."""
    return "\n".join([*(_line(finding) for finding in report.findings), "".join(summary_line(report))])


def _line(finding: Finding) -> str:
    place = finding.location
    where = f"{place.path}:{place.line}:{place.column}" if place else finding.subject
    return f"{clean(where)}: {clean(finding.code)} {finding.severity} {clean(finding.name)}: {clean(finding.message)}"
