"""`--fix` and `--diff`: lint, apply edits, lint again, until nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import fix
from .engine import Settings, lint_file

ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Repaired:
    """One file before and after."""

    path: Path
    before: bytes
    after: bytes
    applied: int


def repair(path: Path, settings: Settings, *, unsafe: bool, data: bytes | None = None) -> Repaired:
    """Return a file's content with every applicable fix made; nothing is written.

    Raises:
        OSError: if the file cannot be read.
    """
    before = path.read_bytes() if data is None else data
    after, applied = before, 0
    for _ in range(ROUNDS):
        groups = fix.chosen(lint_file(path, settings, data=after).findings, unsafe=unsafe)
        changed, count = fix.apply_edits(after, groups)
        if changed == after:
            break
        after, applied = changed, applied + count
    return Repaired(path, before, after, applied)


def repair_all(paths: Iterable[Path], settings: Settings, *, unsafe: bool) -> list[Repaired]:
    """Return the files that fixes change."""
    found = []
    for path in paths:
        try:
            repaired = repair(path, settings, unsafe=unsafe)
        except OSError:
            continue
        if repaired.after != repaired.before:
            found.append(repaired)
    return found
