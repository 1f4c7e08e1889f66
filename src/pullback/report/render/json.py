"""The report as JSON; `Report.from_json` reads it back."""

from __future__ import annotations

from ..report import Report


def render(report: Report) -> str:
    """Return the report as indented JSON with a stable key order."""
    return report.to_json()
