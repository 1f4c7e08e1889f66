"""Which files to look at: the paths given, folders walked once, nothing followed in circles."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

SKIPPED = frozenset(
    [".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "node_modules", ".eggs"]
)


def files(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Iterator[Path]:
    """Yield Python files in a stable order, each once: files as given, folders through their regular files.

    Args:
        paths: Files and folders. A file is taken whatever its name is.
        exclude: Glob patterns on the path or on one of its parts; they apply inside folders only.
    """
    seen: set[Path] = set()
    for path in paths:
        found = _walk(path, exclude) if path.is_dir() else iter((path,))
        for file in found:
            key = Path(os.path.abspath(file))
            if key not in seen:
                seen.add(key)
                yield file


def _walk(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not excluded(Path(root, f), exclude))
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(".py") and not excluded(path, exclude) and not _blocks(path):
                yield path


def _blocks(path: Path) -> bool:
    """Whether reading it may wait for ever, or never end: pipes, sockets and devices. What cannot be looked at is reported by who reads it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode)


def excluded(path: Path, patterns: Sequence[str]) -> bool:
    """Return whether a path, its name, or one of its folders matches a pattern."""
    text = path.as_posix()
    return any(
        fnmatch.fnmatch(text, p) or fnmatch.fnmatch(text, f"*/{p}") or p.rstrip("/") in path.parts or fnmatch.fnmatch(path.name, p) for p in patterns
    )
