"""What a node says about itself, line by line; the same words in every output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..report.finding import Location
from . import measures
from .fold import Group
from .graph import Node

LINE = 46
BADGES = 3


@dataclass(frozen=True, slots=True)
class Label:
    """A node's lines.

    Args:
        title: Its name.
        places: Where a custom Function's methods are written.
        parameters: Its parameters, a module a line.
        keeps: What it keeps for backward, with bytes.
        badge: What a check found about it: ``"PB501, PB612"``.
    """

    title: str
    places: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    keeps: str = ""
    badge: str = ""


def label(node: Node, prefix: str = "") -> Label:
    """Return the lines of a node; parameters are named within the module `prefix`."""
    places = [f"{word} {_short(place)}" for word, place in (("forward", node.forward), ("backward", node.backward)) if place]
    return Label(node.name, tuple(places), tuple(_parameters(node, prefix)), _keeps(node), _badge(node))


def short(text: str, limit: int = LINE) -> str:
    """Return `text`, its middle left out where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def shortened(lines: Label) -> Label:
    """Return the lines, each short enough for a box."""
    return replace(
        lines,
        title=short(lines.title),
        places=tuple(map(short, lines.places)),
        parameters=tuple(map(short, lines.parameters)),
        keeps=short(lines.keeps),
    )


def group_title(group: Group) -> str:
    """Return the title of a group: ``"×12  layers.0–11, one after another"``."""
    if not group.items:
        return measures.count(group.size, "operation")
    if group.times == 1:
        return group.title
    how = "one after another" if group.chained else "side by side"
    return f"×{group.times:,}  {group.title}".rstrip() + f", {how}"


def _short(place: Location) -> str:
    return f"{PurePath(measures.place(replace(place, line=0))).name.rpartition(':')[0]}:{place.line}"


def _parameters(node: Node, prefix: str) -> Iterable[str]:
    modules: dict[str, list[str]] = {}
    for parameter in node.parameters:
        name = parameter.name.removeprefix(f"{prefix}.") if prefix else parameter.name
        module, _, own = name.rpartition(".")
        known = modules.setdefault(module, [])
        if own not in known:
            known.append(own)
    for module, names in modules.items():
        yield (f"{module}." if module else "") + ", ".join(names)


def _badge(node: Node) -> str:
    codes = ", ".join(node.findings[:BADGES])
    return codes + (f" +{len(node.findings) - BADGES}" if len(node.findings) > BADGES else "")


def _keeps(node: Node) -> str:
    if not node.saved:
        return ""
    names = list(dict.fromkeys(tensor.name for tensor in node.saved))
    shown = ", ".join(names) if len(names) <= 3 else ", ".join(names[:2]) + f" and {len(names) - 2} more"
    return f"keeps {shown}  {measures.size(node.saved_bytes)}"
