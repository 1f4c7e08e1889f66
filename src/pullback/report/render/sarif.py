"""The report as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..clean import clean
from ..codes import Code, registry
from ..finding import Edit, Finding, Location
from ..report import Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def render(report: Report) -> str:
    """Return the report as SARIF 2.1.0 text.

    One run, one rule for each code found, one result for each finding; edits become fixes with byte ranges.
    """
    known = registry()
    codes = sorted({f.code for f in report.findings})
    index = {code: number for number, code in enumerate(codes)}
    driver = {
        "name": "pullback",
        "semanticVersion": str(report.environment.get("pullback", "0")),
        "rules": [_rule(known[code]) if code in known else {"id": code} for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "utf16CodeUnits",
        "invocations": [{"executionSuccessful": not any(run.status == "error" for run in report.checks)}],
        "results": [_result(finding, index[finding.code]) for finding in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=True)


def _rule(code: Code) -> dict[str, Any]:
    first, _, rest = code.doc.partition("\n")
    return {
        "id": code.code,
        "name": code.name,
        "shortDescription": {"text": first or code.name},
        "fullDescription": {"text": " ".join(rest.split()) or first or code.name},
        "help": {"text": code.doc or code.name},
        "defaultConfiguration": {"level": _LEVELS[code.severity]},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": _message(finding)},
    }
    if finding.location is not None:
        result["locations"] = [{"physicalLocation": _place(finding.location), "logicalLocations": [{"fullyQualifiedName": clean(finding.subject)}]}]
    else:
        result["locations"] = [{"logicalLocations": [{"fullyQualifiedName": clean(finding.subject)}]}]
    if finding.edits:
        result["fixes"] = [_fix(finding)]
    return result


def _message(finding: Finding) -> str:
    parts = [finding.message]
    parts += [e.text for e in finding.evidence]
    parts += [f"cause: {finding.cause}"] if finding.cause else []
    parts += [f"fix: {finding.fix}"] if finding.fix else []
    return "\n".join(clean(part, keep_newlines=True) for part in parts)


def _place(location: Location) -> dict[str, Any]:
    region = {"startLine": max(1, location.line), "startColumn": max(1, location.column)}
    if location.end_line is not None and location.end_line >= location.line:
        region["endLine"] = location.end_line
    return {"artifactLocation": {"uri": uri(location.path)}, "region": region}


def _fix(finding: Finding) -> dict[str, Any]:
    changes: dict[str, list[Edit]] = {}
    for edit in finding.edits:
        changes.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": clean(finding.fix or f"mend {finding.name}")},
        "artifactChanges": [
            {"artifactLocation": {"uri": uri(path)}, "replacements": [_replacement(edit) for edit in edits]} for path, edits in changes.items()
        ],
    }


def _replacement(edit: Edit) -> dict[str, Any]:
    return {
        "deletedRegion": {"byteOffset": edit.start, "byteLength": edit.end - edit.start},
        "insertedContent": {"text": edit.replacement},
    }


def uri(path: str) -> str:
    """Return a path as a URI reference: relative to the working directory where it lies below it."""
    given = Path(path)
    if given.is_absolute():
        try:
            given = given.relative_to(Path.cwd())
        except ValueError:
            return given.as_uri()
    return quote(given.as_posix())
