"""Functions whose code pullback wrote: which op they belong to, and where its author wrote the body and the rules."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from ..report.finding import Location
from .calls import Function, relative_path, resolve_target

GENERATED = "pullback._generated."
_PLAIN = "plain_"
_INTERNAL = frozenset({"shapes", "many", "autocast", "metas", "to_save"})


@dataclass(frozen=True, slots=True)
class Written:
    """Where a Function comes from.

    Args:
        name: The class's name, or the op's.
        subject: The name under which findings speak of it: ``"pkg.mod.Class"``.
        place: Where the class or the op's body is written.
        forward: Where forward is written.
        backward: Where backward, or the first of an op's rules, is written.
        generated: Whether the class is generated from an op.
    """

    name: str
    subject: str
    place: Location | None
    forward: Location | None
    backward: Location | None
    generated: bool = False


def written(function: type[Function]) -> Written:
    """Return where a Function is written; for one that is generated from an op, where the op is."""
    definition = _definition(function)
    if definition is None:
        target = resolve_target(function)
        return Written(target.name, target.subject, target.location, target.forward_location, target.backward_location)
    body = _location(definition.place)
    rules = [_location(rule.place) for rule in definition.rules]
    subject = f"{definition.module}.{definition.body.__qualname__}"
    return Written(definition.name, subject, body, body, min(rules, key=lambda place: place.line, default=body), True)


def attributes(function: type[Function], ctx: Any) -> dict[str, Any]:
    """Return what the author keeps on `ctx`, by name; what only generated code needs is left out, and the rest bears the op's names."""
    found = vars(ctx)
    if not is_generated(function):
        return {f"ctx.{name}": value for name, value in found.items()}
    return {name.removeprefix(_PLAIN): value for name, value in found.items() if name not in _INTERNAL and not _absent(name, value)}


def is_generated(function: type[Function]) -> bool:
    """Whether a Function's code is generated from an op."""
    return function.__module__.startswith(GENERATED)


def _absent(name: str, value: Any) -> bool:
    return name.startswith(_PLAIN) and value is None


def _definition(function: type[Function]) -> Any:
    if not is_generated(function):
        return None
    for name in (function.__module__, re.sub(r"_\d+$", "", function.__module__)):
        declared = getattr(sys.modules.get(name), "declared", None)
        if declared is not None:
            return declared.definition
    return None


def _location(place: Any) -> Location:
    return Location(relative_path(place.path), place.line)
