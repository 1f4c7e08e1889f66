"""What the command line names, as files and modules to import. Nothing is imported here."""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_MARKS = ("Function", "__pullback__", "pullback_cases", "pb.op", "pullback.op", "custom_op", "triton_op")


class TargetError(ValueError):
    """Raised for a target that is neither a file nor a module; the message suggests near ones."""


@dataclass(frozen=True, slots=True)
class Target:
    """One file to import, and which names of it were asked for.

    Args:
        spec: The part before ``::`` as it was given, with which a command that reproduces a finding starts.
        path: The absolute path of the file.
        module: Its dotted name where it was named as a module; None where it was named as a file.
        names: The names after ``::``; empty for everything defined there.
    """

    spec: str
    path: str
    module: str | None = None
    names: tuple[str, ...] = ()


def parse_targets(specs: Sequence[str]) -> list[Target]:
    """Return one target a file for ``FILE``, ``FOLDER``, ``pkg.module`` or ``pkg``, each with or without ``::NAME``.

    Raises:
        TargetError: for a spec that names nothing that exists.
    """
    found: dict[str, Target] = {}
    for spec in specs:
        base, _, name = spec.partition("::")
        for target in _targets(base, whole=not name):
            known = found.get(target.path)
            if known is None:
                found[target.path] = replace(target, names=(name,) if name else ())
            elif not name:
                found[target.path] = replace(known, names=())
            elif known.names:
                found[target.path] = replace(known, names=(*known.names, name))
    return list(found.values())


def _targets(base: str, *, whole: bool) -> list[Target]:
    if not base:
        raise TargetError("a target is empty; name a file or a module")
    path = Path(base)
    if path.is_dir():
        return _nothing_named(base, [Target(str(p), str(p.resolve())) for p in _promising(path)])
    if path.is_file():
        return [Target(base, str(path.resolve()))]
    if base.endswith(".py") or os.sep in base:
        raise TargetError(f"no file {base!r}.{_similar_files(path)}")
    home = _module_path(base)
    if home is None:
        raise TargetError(f"{base!r} is neither a file nor a module that can be found from here.{_similar_files(path)}")
    if home.name == "__init__.py" and whole:
        return _nothing_named(base, [Target(_dotted(base, home.parent, p), str(p), _dotted(base, home.parent, p)) for p in _promising(home.parent)])
    return [Target(base, str(home), base)]


def _promising(folder: Path) -> list[Path]:
    """Python files below `folder` whose text could define a custom derivative."""
    files = [
        p for p in sorted(folder.rglob("*.py")) if not any(part.startswith(".") or part == "__pycache__" for part in p.relative_to(folder).parts)
    ]
    return [p for p in files if any(mark in p.read_text(encoding="utf-8", errors="replace") for mark in _MARKS)]


def _nothing_named(base: str, targets: list[Target]) -> list[Target]:
    if not targets:
        raise TargetError(f"no file below {base!r} mentions autograd.Function, pb.op, torch.library.custom_op or pullback_cases")
    return targets


def _dotted(package: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _module_path(name: str) -> Path | None:
    """Return the file of a dotted name. Only the first part is looked up by the import system, which imports nothing for it."""
    first, *rest = name.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        return None
    for candidate in _roots(first):
        place = candidate.joinpath(*rest) if rest else candidate
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file.resolve()
    return None


def _roots(name: str) -> Iterable[Path]:
    yield Path.cwd() / name
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    for location in spec.submodule_search_locations or ():
        yield Path(location)
    if spec.origin and spec.origin.endswith(".py"):
        yield Path(spec.origin).with_suffix("")


def _similar_files(path: Path) -> str:
    folder = path.parent
    names = [p.name for p in folder.glob("*.py")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f" Did you mean {', '.join(str(folder / n) for n in near)}?" if near else ""
