"""`[tool.pullback]` as defaults of a command's options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..declare import KEYS, DeclarationError, read_configuration

CHECK_KEYS = (
    "select",
    "ignore",
    "fail-on",
    "strict",
    "cases",
    "device",
    "dtype",
    "seed",
    "timeout",
    "jobs",
    "thorough",
    "distributed",
    "orders",
    "baseline",
    "output-format",
)
TABLES = ("declare", "lint")
_PATHS = ("cases", "baseline")


class ConfiguredCommand(click.Command):
    """A command whose options take their defaults from `[tool.pullback]` of the nearest pyproject.toml."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any) -> click.Context:
        path, table = configuration(Path.cwd())
        own = {key.replace("-", "_"): _anchored(key, value, path) for key, value in table.items() if key in CHECK_KEYS}
        extra.setdefault("default_map", own)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta["pullback.declare"] = table.get("declare", {})
        return context


def configuration(start: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the nearest configuration file and its `[tool.pullback]` table.

    Raises:
        click.UsageError: for a file that is not TOML and for unknown keys, with suggestions.
    """
    try:
        path, table = read_configuration(start)
    except DeclarationError as error:
        raise click.UsageError(str(error)) from error
    for key in table:
        if key not in (*CHECK_KEYS, *TABLES):
            raise click.UsageError(f"{path}: unknown key {key!r} in [tool.pullback].{_near(key, (*CHECK_KEYS, *TABLES))}")
    _validate_declarations(path, table.get("declare", {}))
    return path, table


def _validate_declarations(path: Path | None, declarations: Any) -> None:
    if not isinstance(declarations, Mapping):
        raise click.UsageError(f'{path}: [tool.pullback.declare] must be a table of "pkg.mod.Class" = {{ exact = false, reason = "…" }}')
    for name, declaration in declarations.items():
        where = f"{path}: [tool.pullback.declare] {name!r}"
        if not isinstance(declaration, Mapping):
            raise click.UsageError(f'{where} must be a table such as {{ exact = false, reason = "…" }}, got {declaration!r}')
        for key in declaration:
            if key not in KEYS:
                raise click.UsageError(f"{where}: unknown key {key!r}; the keys are {', '.join(KEYS)}.{_near(key, KEYS)}")


def _anchored(key: str, value: Any, path: Path | None) -> Any:
    return str(path.parent / value) if path and key in _PATHS and isinstance(value, str) else value


def _near(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" The keys are {', '.join(known)}."
