"""Declarations: what an author says about a gradient, read from `__pullback__`, pyproject.toml or a case.

Standard library only, so that the linter can read declarations where torch is not installed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

ATTRIBUTE = "__pullback__"


class DeclarationError(ValueError):
    """Raised for a declaration with an unknown key or a value of the wrong type."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is promised about a gradient.

    Args:
        exact: False where the gradient is deliberately not the derivative of the forward.
        linear: False where backward is deliberately not linear in grad_output (guided ReLU, clipping).
        orders: 2 where second derivatives must be right.
        surrogate: A callable of the same arguments whose gradient backward returns.
        reference: A callable of the same arguments that computes the same values with plain torch.
        samples: A callable that yields cases.
        static: Names of arguments that are never differentiated.
        reason: Why, in the author's words.
    """

    exact: bool = True
    linear: bool = True
    orders: int = 1
    surrogate: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None
    samples: Callable[..., Any] | None = None
    static: tuple[str, ...] = ()
    reason: str = ""

    @property
    def deliberate(self) -> bool:
        """Whether the gradient is declared to be something else than the forward's derivative."""
        return not self.exact or not self.linear or self.surrogate is not None

    @property
    def stated(self) -> dict[str, Any]:
        """What is declared otherwise than where nothing is, by key."""
        return {key: value for key in KEYS if (value := getattr(self, key)) != getattr(_NOTHING, key)}

    def update(self, where: str, **values: Any) -> Declaration:
        """Return the declaration with `values` laid over it; `where` names their origin in errors.

        Raises:
            DeclarationError: for an unknown key or a value of the wrong type.
        """
        for key, value in values.items():
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise DeclarationError(f"{where}: unknown key {key!r} in a declaration; the keys are {', '.join(KEYS)}.{hint}")
            _require(where, key, value)
        if isinstance(values.get("static"), (list, set)):
            values["static"] = tuple(values["static"])
        return replace(self, **values)


_NOTHING = Declaration()
KEYS: tuple[str, ...] = tuple(f.name for f in fields(Declaration))
_TYPES: dict[str, tuple[type, ...]] = {"exact": (bool,), "linear": (bool,), "orders": (int,), "static": (tuple, list, set), "reason": (str,)}


def declaration_of(target: object, *, configured: Mapping[str, Mapping[str, Any]] | None = None, subject: str = "") -> Declaration:
    """Return what `target.__pullback__` and the project's configuration declare; later wins over earlier.

    Args:
        target: A Function class, op or callable that may carry `__pullback__`, a mapping.
        configured: `[tool.pullback.declare]`: qualified name to declaration.
        subject: The qualified name to look up in `configured`; a unique dotted suffix is enough.

    Raises:
        DeclarationError: for a declaration that is not a mapping or has unknown keys.
    """
    declaration = Declaration()
    own = getattr(target, ATTRIBUTE, None)
    if own is not None:
        where = f"{getattr(target, '__qualname__', target)}.{ATTRIBUTE}"
        if not isinstance(own, Mapping):
            raise DeclarationError(f"{where} must be a dict such as {{'exact': False, 'reason': '…'}}, got {type(own).__name__}")
        declaration = declaration.update(where, **own)
    for name, values in (configured or {}).items():
        if subject == name or subject.endswith("." + name):
            declaration = declaration.update(f"[tool.pullback.declare] {name!r}", **values)
    return declaration


def read_configuration(start: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the nearest pyproject.toml at or above `start` that has a `[tool.pullback]` table, and that table.

    Raises:
        DeclarationError: if the file is not valid TOML.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                data = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise DeclarationError(f"{path}: {error}") from error
            table = data.get("tool", {}).get("pullback")
            if table is not None:
                return path, table
    return None, {}


def _require(where: str, key: str, value: Any) -> None:
    if key in _TYPES:
        wanted = _TYPES[key]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            names = " or ".join(t.__name__ for t in wanted)
            raise DeclarationError(f"{where}: {key} must be {names}, got {value!r}")
        if key == "orders" and value not in (1, 2):
            raise DeclarationError(f"{where}: orders must be 1 or 2, got {value!r}")
    elif value is not None and not callable(value):
        raise DeclarationError(f"{where}: {key} must be callable, got {type(value).__name__}")
