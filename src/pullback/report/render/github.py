"""The report as workflow commands, which GitHub shows beside the lines they name."""

from __future__ import annotations

from ..clean import clean
from ..finding import Finding
from ..report import Report

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report) -> str:
    """Return one workflow command for each finding; an empty report gives an empty string.

    Example:
        >>> from pullback import Report
        >>> render(Report())
        ''
    """
    return "\n".join(_command(finding) for finding in report.findings)


def _command(finding: Finding) -> str:
    properties = {"title": f"{finding.code} {finding.name}"}
    if finding.location is not None:
        properties |= {"file": finding.location.path, "line": str(finding.location.line), "col": str(finding.location.column)}
        if finding.location.end_line is not None and finding.location.end_line > finding.location.line:
            properties["endLine"] = str(finding.location.end_line)
            del properties["col"]
    text = finding.message + (f"\nfix: {finding.fix}" if finding.fix else "")
    listed = ",".join(f"{key}={_property(value)}" for key, value in sorted(properties.items()))
    return f"::{_COMMANDS[finding.severity]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    """Escape a message: `%`, and line ends, which would end the command."""
    return clean(text, keep_newlines=True).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property: what a message needs, and the two separators."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
