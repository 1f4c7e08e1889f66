"""Graphs, saved memory and traces as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import measures
from .fold import Folded, Item, fold
from .graph import Graph, Node
from .labels import group_title, label


def graph_text(graph: Graph, width: int = 100) -> str:
    """Return a graph as numbered lines in the order of the forward; repeated parts stand once, indented.

    Sources are named by their numbers where a node takes something else than the line above it gives.
    """
    lines = list(_Lines(fold(graph), width).run())
    return "\n".join(lines)


class _Lines:
    def __init__(self, folded: Folded, width: int) -> None:
        self._folded, self._graph, self._width = folded, folded.graph, width
        self._number: dict[int, int] = {}
        shown = [index for item in folded.items for index in _numbered(item)]
        for number, index in enumerate(shown, 1):
            self._number[index] = number
        self._margin = len(str(len(shown)))
        self._before: int | None = None

    def run(self) -> Iterator[str]:
        for item in self._folded.items:
            yield from self._item(item, 0, "")
        nodes = self._graph.nodes
        yield ""
        total = len(nodes) + self._folded.left_out
        left_out = f", {self._folded.left_out:,} that only reshape left out" if self._folded.left_out else ""
        custom = sum(node.kind == "function" for node in nodes)
        yield measures.count(total, "node") + left_out + (f", {measures.count(custom, 'custom Function')}" if custom else "")

    def _item(self, item: Item, depth: int, prefix: str) -> Iterator[str]:
        indent = " " * (self._margin + 2) + "│ " * depth
        if isinstance(item, int):
            yield from self._node(item, depth, prefix)
        elif not item.items:
            yield f"{self._number[item.first]:>{self._margin}}  {'│ ' * depth}… {group_title(item)}"
            self._before = item.first
        else:
            yield f"{indent}┌ {group_title(item)}"
            for child in item.items:
                yield from self._item(child, depth + 1, item.prefix or prefix)
            yield f"{indent}└"

    def _node(self, index: int, depth: int, prefix: str) -> Iterator[str]:
        node = self._graph.nodes[index]
        about = label(node, prefix)
        head = f"{self._number[index]:>{self._margin}}  {'│ ' * depth}"
        first = f"{head}{'● ' if node.kind == 'function' else ''}{about.title}  {_values(node)}{self._sources(index, node)}"
        badge = f"! {about.badge}" if about.badge else ""
        details = [*(f"with {line}" for line in about.parameters), about.keeps, *about.places, badge]
        yield from _filled(first, details, " " * (self._margin + 2) + "│ " * depth + "    ", self._width)
        self._before = index

    def _sources(self, index: int, node: Node) -> str:
        stands_for = self._folded.stands_for
        sources = list(dict.fromkeys(stands_for[source] for source, _ in node.sources if stands_for[source] != stands_for[index]))
        if not sources or sources == [self._before]:
            return ""
        numbers = [str(self._number[source]) for source in sources]
        return "  ← " + ", ".join(numbers[:6]) + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")


def _numbered(item: Item) -> Iterator[int]:
    if isinstance(item, int):
        yield item
    elif not item.items:
        yield item.first
    else:
        for child in item.items:
            yield from _numbered(child)


def _values(node: Node) -> str:
    shown = ", ".join(node.values[:3])
    return shown + (f" and {len(node.values) - 3} more" if len(node.values) > 3 else "")


def _filled(first: str, details: Sequence[str], indent: str, width: int) -> Iterator[str]:
    """Yield a line with as many details behind it as fit, and the others below it."""
    line = first
    for detail in filter(None, details):
        if len(line) + 2 + len(detail) <= width:
            line += f"  {detail}"
        else:
            yield line
            line = indent + detail
    yield line


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Iterator[str]:
    """Yield rows as aligned columns; the columns in `right` are aligned to the right."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
