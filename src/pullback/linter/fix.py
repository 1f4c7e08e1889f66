"""Applying edits: byte ranges, none overlapping, nothing else in the file touched."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..report.finding import Edit, Finding


def chosen(findings: Iterable[Finding], *, unsafe: bool) -> list[tuple[Edit, ...]]:
    """Return the groups of edits that may be applied: one group a finding, whole or not at all."""
    groups: list[tuple[Edit, ...]] = []
    for finding in findings:
        if finding.edits and (unsafe or all(e.safe for e in finding.edits)) and finding.edits not in groups:
            groups.append(finding.edits)
    return groups


def apply_edits(data: bytes, groups: Sequence[tuple[Edit, ...]]) -> tuple[bytes, int]:
    """Return the changed bytes of one file and the number of groups applied.

    A group that overlaps one already taken is left for the next round.
    """
    taken: list[Edit] = []
    applied = 0
    for group in groups:
        if all(e in taken or not any(_overlap(e, t) for t in taken) for e in group):
            taken.extend(e for e in group if e not in taken)
            applied += 1
    for edit in sorted(taken, key=lambda e: (e.start, e.end), reverse=True):
        data = data[: edit.start] + edit.replacement.encode("utf-8") + data[edit.end :]
    return data, applied


def diff(path: str, before: bytes, after: bytes) -> str:
    """Return a unified diff of one file."""
    old, new = (b.decode("utf-8", "replace").splitlines(keepends=True) for b in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))


def write(path: Path, data: bytes) -> None:
    """Replace a file's content, through a symlink if it is one, keeping its mode."""
    path.write_bytes(data)


def _overlap(a: Edit, b: Edit) -> bool:
    if a.start == a.end == b.start == b.end:
        return True
    return a.start < b.end and b.start < a.end
