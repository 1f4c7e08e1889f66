"""`Report`: findings, what ran, on what, and where; every output format is a renderer of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from .finding import JSON, SEVERITIES, CheckRun, Edit, Evidence, Finding, Location, Severity

SCHEMA = 1
RAN = ("pass", "fail", "unsupported", "waste", "declared")


class CheckFailed(AssertionError):
    """Raised by `Report.raise_if_failed`; the message is the printed report, `report` the report itself."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check, a lint run or a recording.

    Args:
        findings: Faults and notes, in the order in which they were found.
        checks: One entry for each check on each subject, also for those that passed or were skipped.
        subjects: Qualified names of everything that was looked at.
        environment: Versions, seed and settings that are needed to see the same again.
        schema: Version of the JSON form.
    """

    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckRun, ...] = ()
    subjects: tuple[str, ...] = ()
    environment: Mapping[str, JSON] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def ok(self) -> bool:
        """Whether there is no error and no warning, and at least one check ran."""
        return self.worst() not in ("error", "warning") and any(run.status in RAN for run in self.checks)

    def worst(self) -> Severity | None:
        """Return the gravest severity among the findings, or None."""
        severities: list[Severity] = [f.severity for f in self.findings]
        return min(severities, key=SEVERITIES.index, default=None)

    def filter(self, keep: Callable[[Finding], bool]) -> Report:
        """Return the same report with only those findings for which `keep` is true."""
        return replace(self, findings=tuple(f for f in self.findings if keep(f)))

    def merge(self, *others: Report) -> Report:
        """Return one report holding this one's and the others' findings, checks and subjects, without repeats.

        Of findings that say the same of the same subject (as several samples do) the first is kept, or the first of the gravest; one that lists
        what it is about (attachment ``"about"``) says the same as those before it, and as longer ones, that list all of that.
        """
        reports = (self, *others)
        environment: dict[str, JSON] = {}
        for report in reversed(reports):
            for key, value in report.environment.items():
                known = environment.get(key)
                environment[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
        return Report(
            findings=_with_news(_gravest(f for r in reports for f in r.findings)),
            checks=_unique(c for r in reports for c in r.checks),
            subjects=_unique(s for r in reports for s in r.subjects),
            environment=environment,
            schema=self.schema,
        )

    def raise_if_failed(self) -> Report:
        """Return the report itself, or raise `CheckFailed` (an `AssertionError`) with the printed findings.

        Raises:
            CheckFailed: if there is an error or a warning, or if nothing could be checked.
        """
        if not self.ok:
            raise CheckFailed(str(self), self)
        return self

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return the report as JSON text with a stable key order; `from_json` reads it back."""
        return json.dumps(self._data(), indent=indent, ensure_ascii=True)

    def _data(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "ok": self.ok,
            "subjects": list(self.subjects),
            "findings": [asdict(replace(f, attachments=dict(f.attachments))) for f in self.findings],
            "checks": [asdict(c) for c in self.checks],
            "environment": dict(sorted(self.environment.items())),
        }

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report written by `to_json`.

        Raises:
            ValueError: if the text is not a report, or is one of a newer schema.
        """
        try:
            data = json.loads(text)
            schema = data["schema"]
        except (TypeError, KeyError, json.JSONDecodeError) as error:
            raise ValueError(f"not a pullback report: {error}") from error
        if not isinstance(schema, int) or schema > SCHEMA:
            raise ValueError(f"this report has schema {schema!r}, newer than {SCHEMA}: update pullback to read it")
        return cls(
            findings=tuple(_finding(f) for f in data["findings"]),
            checks=tuple(CheckRun(**c) for c in data["checks"]),
            subjects=tuple(data["subjects"]),
            environment=data["environment"],
            schema=schema,
        )

    def __str__(self) -> str:
        from .render.text import to_text

        return to_text(self)

    def __rich__(self) -> Any:
        from .render.text import renderable

        return renderable(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": str(self)}


def _gravest(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    kept: dict[tuple[str, str, str, Location | None], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.subject, finding.message, finding.location)
        if key not in kept or SEVERITIES.index(finding.severity) < SEVERITIES.index(kept[key].severity):
            kept[key] = finding
    return tuple(kept.values())


def _with_news(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Leave out the findings of which every name is told by others, the longest first."""
    told: dict[tuple[str, str, str], set[str]] = {}
    left_out: set[int] = set()
    for at in sorted(range(len(findings)), key=lambda at: -len(_about(findings[at]))):
        finding = findings[at]
        names = set(_about(finding))
        known = told.setdefault((finding.code, finding.subject, finding.severity), set())
        if names and names <= known:
            left_out.add(at)
        known |= names
    return tuple(finding for at, finding in enumerate(findings) if at not in left_out)


def _about(finding: Finding) -> list[str]:
    names = finding.attachments.get("about")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _unique(items: Iterable[Any]) -> tuple[Any, ...]:
    seen: list[Any] = []
    keys: set[str] = set()
    for item in items:
        key = repr(item)
        if key not in keys:
            keys.add(key)
            seen.append(item)
    return tuple(seen)


def _finding(data: dict[str, Any]) -> Finding:
    known = {f.name for f in fields(Finding)}
    values = {key: value for key, value in data.items() if key in known}
    values["location"] = Location(**values["location"]) if values.get("location") else None
    values["evidence"] = tuple(Evidence(**e) for e in values.get("evidence", ()))
    values["edits"] = tuple(Edit(**e) for e in values.get("edits", ()))
    return Finding(**values)
