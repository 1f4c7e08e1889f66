"""Graphs, saved memory and traces as JSON: what a page or another program reads."""

from __future__ import annotations

from typing import Any

from ..report.finding import Location
from .fold import Item, fold_whole
from .graph import Graph, Node


def graph_section(graph: Graph) -> dict[str, Any]:
    """Return a graph as JSON data: every node and edge, and how it is shown.

    ``shown`` lists the indices of the nodes that are shown, without reshapes where the graph is large. ``tree`` holds places in ``shown``, and
    groups: a group stands for ``size * times`` places from ``first`` and lists those of its first copy.
    """
    folded = fold_whole(graph)
    return {
        "schema": 1,
        "kind": "graph",
        "nodes": [_node(node) for node in graph.nodes],
        "outputs": [list(output) for output in graph.outputs],
        "shown": list(folded.kept),
        "tree": [_item(item) for item in folded.items],
    }


def location(place: Location | None) -> dict[str, Any] | None:
    """Return a place as JSON data."""
    return {"path": place.path, "line": place.line} if place else None


def _node(node: Node) -> dict[str, Any]:
    return {
        "kind": node.kind,
        "name": node.name,
        "values": list(node.values),
        "sources": [list(source) for source in node.sources],
        "parameters": [{"name": p.name, "value": p.value} for p in node.parameters],
        "saved": [{"name": t.name, "value": t.value, "bytes": t.bytes} for t in node.saved],
        "forward": location(node.forward),
        "backward": location(node.backward),
        "findings": list(node.findings),
        **({"subject": node.subject} if node.subject else {}),
    }


def _item(item: Item) -> int | dict[str, Any]:
    if isinstance(item, int):
        return item
    fields = {name: getattr(item, name) for name in ("title", "times", "first", "size", "chained")}
    return {**fields, "items": [_item(part) for part in item.items]}
