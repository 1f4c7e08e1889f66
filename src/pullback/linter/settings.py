"""`[tool.pullback.lint]`: the lint command's settings in pyproject.toml."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..report.codes import UnknownCode, resolve
from .engine import Settings, all_rules, default_codes

KEYS = ("select", "ignore", "extend-select", "per-file-ignores", "exclude", "fail-on", "baseline", "output-format", "unsafe-fixes")
_STRINGS = ("fail-on", "baseline", "output-format")
_LISTS = ("select", "ignore", "extend-select", "exclude")


class SettingError(ValueError):
    """Raised for a key that lint does not know, or a value of the wrong kind."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The lint table of a pyproject.toml, checked."""

    values: Mapping[str, Any]
    root: Path | None = None
    declared: Mapping[str, Mapping[str, Any]] | None = None

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)


def configured(path: Path | None, table: Mapping[str, Any]) -> Configured:
    """Return the checked settings of `[tool.pullback]`: its `lint` table, and what it declares.

    Raises:
        SettingError: for an unknown key (with the nearest known one) or a value of the wrong kind.
    """
    where = f"{path}: [tool.pullback.lint]"
    values = table.get("lint", {})
    if not isinstance(values, Mapping):
        raise SettingError(f"{where} must be a table")
    for key, value in values.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingError(f"PB005 unknown-setting: {where}: unknown key {key!r}; the keys are {', '.join(KEYS)}.{hint}")
        _require(f"{where} {key}", key, value)
    return Configured(values, path.parent if path else None, table.get("declare", {}))


def settings(found: Configured, *, select: frozenset[str], extend: frozenset[str], ignore: frozenset[str]) -> Settings:
    """Return what the command line and the configuration together ask for; the command line's `select` replaces the file's.

    Raises:
        SettingError: for an unknown code in the file, or if no rule is left to run.
    """
    chosen = select or _codes(found, "select") or default_codes()
    chosen = (chosen | extend | _codes(found, "extend-select")) - ignore - _codes(found, "ignore")
    per_file = tuple(
        (pattern, _resolve(found, f"per-file-ignores {pattern!r}", words)) for pattern, words in found.get("per-file-ignores", {}).items()
    )
    rules = chosen & frozenset(all_rules())
    if not rules:
        others = sorted(chosen)
        named = ", ".join(others[:3]) + (" and others" if len(others) > 3 else "")
        raise SettingError(
            "no lint rule is left to run: " + (f"{named} cannot be read off the source; pullback check finds them" if others else "all are ignored")
        )
    return Settings(rules, per_file, tuple(found.get("exclude", ())), found.declared or {})


def _codes(found: Configured, key: str) -> frozenset[str]:
    return _resolve(found, key, found.get(key, ()))


def _resolve(found: Configured, key: str, words: Any) -> frozenset[str]:
    try:
        return resolve(words)
    except UnknownCode as error:
        raise SettingError(f"{found.root}/pyproject.toml: [tool.pullback.lint] {key}: {error}") from error


def _require(where: str, key: str, value: Any) -> None:
    if key in _LISTS and not _strings(value):
        raise SettingError(f"{where} must be a list of strings, got {value!r}")
    if key in _STRINGS and not isinstance(value, str):
        raise SettingError(f"{where} must be a string, got {value!r}")
    if key == "fail-on" and value not in ("error", "warning"):
        raise SettingError(f'{where} must be "error" or "warning", got {value!r}')
    if key == "unsafe-fixes" and not isinstance(value, bool):
        raise SettingError(f"{where} must be true or false, got {value!r}")
    if key == "per-file-ignores" and not (isinstance(value, Mapping) and all(_strings(v) for v in value.values())):
        raise SettingError(f'{where} must be a table of patterns to lists of codes, such as {{ "tests/*" = ["PB201"] }}, got {value!r}')


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)
