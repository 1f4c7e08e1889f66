"""The registry of codes: read from the files that define them, without importing them.

Each code is one file holding one class with one docstring and the class attributes ``code``, ``name`` and ``severity``.
Reading them with `ast` keeps `pullback explain` and option parsing free of torch, and keeps this package below the ones it lists.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .finding import Severity

FOLDERS = ("report/tool_codes", "linter/rules", "battery/checks")
FAMILIES = {
    "PB0": "tool",
    "PB1": "lint: wrong gradient",
    "PB2": "lint: ctx, memory, state",
    "PB3": "lint: transforms and style",
    "PB4": "lint: noisy, off by default",
    "PB5": "gradient values",
    "PB6": "contract",
    "PB7": "transforms",
    "PB8": "devices, distributed",
    "PB9": "cost",
}
_FILE = re.compile(r"^pb\d{3}_\w+\.py$")


class UnknownCode(ValueError):
    """Raised for a code, name or family that does not exist; the message suggests near ones."""


@dataclass(frozen=True, slots=True)
class Code:
    """One entry of the registry.

    Args:
        code: ``"PB604"``.
        name: Of the fault.
        severity: Of its findings, unless they say otherwise.
        doc: Its page.
        path: The file that defines it.
        tier: Of a check: when it runs.
        compiler: Of a check: whether it makes torch import its compiler, which takes a second.
    """

    code: str
    name: str
    severity: Severity
    doc: str
    path: str
    tier: str = "default"
    compiler: bool = False

    @property
    def family(self) -> str:
        return FAMILIES[self.code[:3]]


@functools.cache
def registry() -> dict[str, Code]:
    """Return every code by its number, in order."""
    root = Path(__file__).resolve().parent.parent
    found: dict[str, Code] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("pb*.py")):
            if _FILE.match(path.name):
                entry = _read(path)
                if entry.code in found:
                    raise RuntimeError(f"{entry.code} is defined in {found[entry.code].path} and in {path}")
                found[entry.code] = entry
    return dict(sorted(found.items()))


def resolve(words: Iterable[str]) -> frozenset[str]:
    """Return the codes meant by codes (``PB604``), names (``strided-grad-output``) and families (``PB6``).

    Raises:
        UnknownCode: for a word that is none of them, with suggestions.
    """
    known = registry()
    codes: set[str] = set()
    for word in words:
        hits = {c for c, e in known.items() if word.lower() == e.name or (re.fullmatch(r"(?i)pb\d{1,3}", word) and c.startswith(word.upper()))}
        if not hits and word.upper() not in FAMILIES:
            near = difflib.get_close_matches(word, [*known, *(e.name for e in known.values())], n=3, cutoff=0.5)
            hint = f" Did you mean {', '.join(near)}?" if near else " `pullback explain` lists them."
            raise UnknownCode(f"unknown code or name {word!r}.{hint}")
        codes |= hits
    return frozenset(codes)


def name_of(code: str) -> str:
    """Return the name that belongs to a code."""
    return registry()[code].name


def _read(path: Path) -> Code:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            values = {
                target.id: statement.value.value
                for statement in node.body
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
                for target in statement.targets
                if isinstance(target, ast.Name)
            }
            if "code" in values:
                return Code(
                    code=str(values["code"]),
                    name=str(values["name"]),
                    severity=values["severity"],  # type: ignore[arg-type]
                    doc=inspect.cleandoc(ast.get_docstring(node) or ""),
                    path=str(path),
                    tier=str(values.get("tier", "default")),
                    compiler=bool(values.get("compiler", False)),
                )
    raise RuntimeError(f"{path} defines no code: one class with code, name and severity is expected")
