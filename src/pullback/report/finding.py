"""The one shape of everything pullback finds: `Finding`, with its evidence, location and edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Severity = Literal["error", "warning", "note"]
Status = Literal["pass", "fail", "unsupported", "waste", "declared", "skipped", "error"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
STATUSES: tuple[Status, ...] = ("pass", "fail", "unsupported", "waste", "declared", "skipped", "error")


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file; lines and columns count from 1."""

    path: str
    line: int
    column: int = 1
    end_line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation: what was seen, what was expected, and the tolerance with its origin."""

    text: str
    got: str = ""
    expected: str = ""
    error: float | None = None
    tolerance: float | None = None
    why_tolerance: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in a file; `start` and `end` are byte offsets."""

    path: str
    start: int
    end: int
    replacement: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault, with everything a renderer needs to explain it.

    Args:
        code: Stable code such as ``"PB604"``; names are listed by ``pullback explain``.
        name: The fault's name, such as ``"strided-grad-output"``.
        severity: ``"error"``, ``"warning"`` or ``"note"``.
        status: What the check concluded.
        subject: Qualified name of what was checked, ``"pkg.mod.Class"``.
        message: The broken law, in one sentence that names the user's function.
        location: Where the fault sits in the user's source, if known.
        evidence: What was observed.
        cause: The likely cause in one sentence.
        certain: Whether an experiment proved the cause.
        fix: What to write instead.
        edits: Machine-applicable fixes.
        repro: A command that shows the finding again.
        upstream: The torch issue, where torch is at fault.
        attachments: JSON sections for the report page.
    """

    code: str
    name: str
    severity: Severity
    status: Status
    subject: str
    message: str
    location: Location | None = None
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    certain: bool = False
    fix: str | None = None
    edits: tuple[Edit, ...] = ()
    repro: str | None = None
    upstream: str | None = None
    attachments: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Code and name as printed: ``"PB604 strided-grad-output"``."""
        return f"{self.code} {self.name}"


@dataclass(frozen=True, slots=True)
class CheckRun:
    """The outcome of one check on one subject, found something or not."""

    code: str
    subject: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
