"""A graph as one SVG picture, drawn here: no other program, no script, no style sheet, no identifiers that could clash in a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from . import measures
from .fold import Folded, Group, Item, fold
from .graph import Graph
from .ink import ALARM, FAINT, INK, KEEPS, MARGIN, PAPER, TEXT, TITLE, picture
from .ink import rectangle as _rect
from .ink import text as _text
from .ink import width as _width
from .labels import Label, group_title, label, short, shortened
from .layout import Box, Key, Line, Link, Placement, place

PAD, LEADING = 12.0, 16.0
GROUP_PAD = 22.0
GROUP_HEAD = 30.0
STEM = 24.0
INSIDE = "#f9fafb"
_FILL = {"op": ("#f6f8fa", "#c4ccd5"), "function": ("#fff3e0", "#c9701a"), "leaf": ("#e6f4ea", "#3d8b57"), "output": ("#e8f0fe", "#3b6fc9")}

Flow = tuple[int, int]


def graph_svg(graph: Graph) -> str:
    """Return the picture of a graph, repeated parts drawn once."""
    return "\n".join(_Picture(fold(graph)).draw())


@dataclass(slots=True)
class _Inside:
    """A container that has been laid out: its boxes and lines, relative to its own corner."""

    boxes: list[Box]
    placement: Placement


class _Picture:
    def __init__(self, folded: Folded) -> None:
        self._folded, self._graph = folded, folded.graph
        self._count = len(self._graph.nodes)
        self._edges = self._all_edges()
        self._inside: dict[Group | None, _Inside] = {}
        self._labels: dict[int, Label] = {}
        self._used: dict[int, list[Flow]] = {}
        for source, slot, _ in self._edges:
            flows = self._used.setdefault(source, [])
            if (source, slot) not in flows:
                flows.append((source, slot))

    def draw(self) -> list[str]:
        tops: tuple[Item, ...] = (*self._folded.items, *range(self._count, self._count + len(self._graph.outputs)))
        for group, prefix in _innermost_first(self._folded.items):
            if group.items:
                self._lay_out(group, group.items, prefix)
        self._lay_out(None, tops, "")
        placement = self._inside[None].placement
        body = list(self._paint())
        note = self._note()
        width = max(placement.width, _width(note, TEXT)) + 2 * MARGIN
        height = placement.height + 2 * MARGIN + LEADING + 6
        foot = _text(0, height - 2 * MARGIN + 4, note, TEXT, FAINT)
        return picture(width, height, note, [*body, foot])

    def _note(self) -> str:
        parts = [measures.count(self._count + self._folded.left_out, "node")]
        if self._folded.left_out:
            parts.append(f"{self._folded.left_out:,} of them only reshape and are left out")
        return ", ".join(parts) + "; forward runs down, backward up"

    def _all_edges(self) -> list[tuple[int, int, int]]:
        """Return ``(source, slot, target)`` between what is shown; outputs of the graph are targets past its last node."""
        edges: dict[tuple[int, int, int], None] = {}
        stands_for = self._folded.stands_for
        for index in _shown(self._folded.items):
            for source, slot in self._graph.nodes[index].sources:
                if stands_for[source] != stands_for[index]:
                    edges[stands_for[source], slot, stands_for[index]] = None
        for position, (index, slot) in enumerate(self._graph.outputs):
            edges[stands_for[index], slot, self._count + position] = None
        return list(edges)

    def _lay_out(self, container: Group | None, items: tuple[Item, ...], prefix: str) -> None:
        owner: dict[int, Item] = {}
        for item in items:
            for index in _members(item):
                owner[index] = item
        boxes = [self._box(item, prefix) for item in items]
        links: list[Link] = []
        entering: dict[Flow, None] = {}
        leaving: dict[Flow, None] = {}
        for source, slot, target in self._edges:
            flow = (source, slot)
            inside = source in owner, target in owner
            if inside == (True, True) and owner[source] != owner[target]:
                links.append(Link(flow, owner[source], owner[target]))
            elif inside == (False, True):
                entering[flow] = None
                links.append(Link(flow, ("in", flow), owner[target]))
            elif inside == (True, False):
                leaving[flow] = None
                links.append(Link(flow, owner[source], ("out", flow)))
        top, bottom = [("in", flow) for flow in entering], [("out", flow) for flow in leaving]
        boxes += [Box(key, 14, 0) for key in (*top, *bottom)]
        placement = place(boxes, links, top=top, bottom=bottom)
        self._inside[container] = _Inside(boxes, placement)

    def _box(self, item: Item, prefix: str) -> Box:
        if isinstance(item, Group):
            return self._group_box(item)
        if item >= self._count:
            return Box(item, max(64.0, _width(self._output_name(item), TITLE) + 2 * PAD), TITLE + 2 * 7)
        lines = shortened(label(self._graph.nodes[item], prefix))
        self._labels[item] = lines
        rest = [*lines.places, *lines.parameters, *([lines.keeps] if lines.keeps else []), *([lines.badge] if lines.badge else [])]
        flows = self._used.get(item, [])
        spread = (
            sum(_width(self._value(flow), TEXT) + 16 for flow in flows)
            if len(flows) > 1
            else _width(self._value(flows[0]), TEXT) - 16
            if flows
            else 0
        )
        width = (
            max(_width(lines.title, TITLE) + 2 * PAD, *(_width(line, TEXT) + 2 * PAD for line in rest), spread, 84.0)
            if rest
            else max(_width(lines.title, TITLE) + 2 * PAD, spread, 84.0)
        )
        height = 2 * 8 + TITLE + len(rest) * LEADING
        bottoms: dict[Key, float] = {flow: width * (i + 0.5) / len(flows) for i, flow in enumerate(flows)}
        return Box(item, width, height, {}, bottoms)

    def _group_box(self, group: Group) -> Box:
        title = _width(group_title(group), TITLE) + 2 * PAD
        if not group.items:
            return Box(group, title, 2 * 8 + TITLE)
        inside = self._inside[group]
        width = max(inside.placement.width + 2 * GROUP_PAD, title)
        shift = (width - inside.placement.width) / 2
        tops: dict[Key, float] = {}
        bottoms: dict[Key, float] = {}
        for box in inside.boxes:
            if isinstance(box.key, tuple):
                (tops if box.key[0] == "in" else bottoms)[box.key[1]] = shift + box.x + box.width / 2
        return Box(group, width, inside.placement.height + GROUP_HEAD + 16, tops, bottoms)

    def _value(self, flow: Flow) -> str:
        values = self._graph.nodes[flow[0]].values
        return short(values[flow[1]]) if flow[1] < len(values) else ""

    def _output_name(self, item: int) -> str:
        return "output" if len(self._graph.outputs) == 1 else f"output {item - self._count + 1}"

    def _paint(self) -> Iterator[str]:
        """Yield frames first, then lines, then labels on lines, then boxes, outermost container first."""
        frames: list[str] = []
        lines: list[str] = []
        values: list[str] = []
        boxes: list[str] = []
        labelled: set[Flow] = set()
        waiting: list[tuple[Group | None, float, float]] = [(None, 0.0, 0.0)]
        for container, x, y in waiting:
            inside = self._inside[container]
            for box in inside.boxes:
                left, upper = x + box.x, y + box.y
                if isinstance(box.key, Group) and box.key.items:
                    frames.append(_frame(left, upper, box))
                    values += _title(left, upper, group_title(box.key))
                    width = self._inside[box.key].placement.width
                    waiting.append((box.key, left + (box.width - width) / 2, upper + GROUP_HEAD))
                elif isinstance(box.key, Group):
                    boxes += _rectangle(left, upper, box, "op", Label(group_title(box.key)))
                elif isinstance(box.key, int):
                    boxes += self._node(left, upper, box, box.key)
            for line in inside.placement.lines:
                lines.append(_curve(line, x, y, self._ends_at(line, container), STEM if self._labelled(line) else 0.0))
                values += self._value_label(line, x, y, labelled, INSIDE if container else PAPER)
        yield from (*frames, *lines, *values, *boxes)

    def _ends_at(self, line: Line, container: Group | None) -> tuple[float, bool, float]:
        """Return how far a line is drawn on at its start and its end, and whether it ends in an arrow."""
        target, source = line.link.target, line.link.source
        below = 16.0 if container is not None and isinstance(target, tuple) else 0.0
        above = GROUP_HEAD if container is not None and isinstance(source, tuple) else 0.0
        return above, not isinstance(target, tuple) and not (isinstance(target, Group) and target.items), below

    def _labelled(self, line: Line) -> bool:
        return isinstance(line.link.source, int)

    def _value_label(self, line: Line, x: float, y: float, labelled: set[Flow], behind: str) -> Iterator[str]:
        flow = line.link.flow
        if not self._labelled(line) or not isinstance(flow, tuple) or flow in labelled:
            return
        labelled.add(flow)
        text = self._value(flow)
        if text:
            start = line.points[0]
            width = _width(text, TEXT)
            yield _rect(x + start[0] - width / 2 - 3, y + start[1] + 7, width + 6, 15, 3, f'fill="{behind}"')
            yield _text(x + start[0], y + start[1] + 18, text, TEXT, FAINT, anchor="middle")

    def _node(self, x: float, y: float, box: Box, index: int) -> list[str]:
        if index >= self._count:
            return _rectangle(x, y, box, "output", Label(self._output_name(index)))
        node = self._graph.nodes[index]
        return _rectangle(x, y, box, node.kind, self._labels[index])


def _shown(items: tuple[Item, ...]) -> Iterator[int]:
    for item in items:
        yield from _members(item)


def _members(item: Item) -> Iterator[int]:
    """Yield the nodes that are shown in an item; of a section, all that it stands for."""
    stack = [item]
    while stack:
        part = stack.pop()
        if isinstance(part, int):
            yield part
        elif part.items:
            stack.extend(part.items[::-1])
        else:
            yield from range(part.first, part.first + part.size)


def _innermost_first(items: tuple[Item, ...]) -> list[tuple[Group, str]]:
    found: list[tuple[Group, str]] = [(item, item.prefix) for item in items if isinstance(item, Group)]
    for group, prefix in found:
        found += [(item, item.prefix or prefix) for item in group.items if isinstance(item, Group)]
    return found[::-1]


def _rectangle(x: float, y: float, box: Box, kind: str, lines: Label) -> list[str]:
    fill, stroke = _FILL[kind]
    radius = box.height / 2 if kind in ("leaf", "output") else 6
    thick = 1.8 if kind == "function" else 1
    parts = [_rect(x, y, box.width, box.height, radius, f'fill="{fill}" stroke="{stroke}" stroke-width="{thick}"')]
    middle, baseline = x + box.width / 2, y + (box.height if kind == "output" else 2 * 8 + TITLE) / 2 + 4.5
    parts.append(_text(middle, baseline, lines.title, TITLE, INK, anchor="middle", bold=True))
    colored = [(line, FAINT) for line in lines.places] + [(line, INK) for line in lines.parameters] + ([(lines.keeps, KEEPS)] if lines.keeps else [])
    for i, (line, color) in enumerate(colored, 1):
        parts.append(_text(middle, baseline + i * LEADING, line, TEXT, color, anchor="middle"))
    if lines.badge:
        at, wide = baseline + (len(colored) + 1) * LEADING, _width(lines.badge, TEXT) + 12
        parts.append(_rect(middle - wide / 2, at - 11, wide, 15, 7.5, f'fill="{ALARM}"'))
        parts.append(_text(middle, at, lines.badge, TEXT, PAPER, anchor="middle", bold=True))
    return parts


def _frame(x: float, y: float, box: Box) -> str:
    return _rect(x, y, box.width, box.height, 10, f'fill="{INSIDE}" stroke="#8c96a3" stroke-dasharray="5 4"')


def _title(x: float, y: float, title: str) -> list[str]:
    backing = _rect(x + PAD - 4, y + 6, _width(title, TITLE) + 8, 18, 0, f'fill="{INSIDE}"')
    return [backing, _text(x + PAD, y + 19, title, TITLE, INK, bold=True)]


def _curve(line: Line, x: float, y: float, ends: tuple[float, bool, float], stem: float) -> str:
    """Return a line as a path; it runs straight down for `stem`, where what flows is written."""
    above, arrow, below = ends
    points = [(px + x, py + y) for px, py in line.points]
    path = [f"M{points[0][0]:.1f} {points[0][1] - above:.1f}"]
    if above:
        path.append(f"V{points[0][1]:.1f}")
    if stem:
        points[0] = (points[0][0], points[0][1] + stem)
        path.append(f"V{points[0][1]:.1f}")
    for i, ((ax, ay), (bx, by)) in enumerate(itertools.pairwise(points)):
        last = i == len(points) - 2
        end = by - (6 if last and arrow else 0)
        if i % 2 or abs(ax - bx) < 0.5:
            path.append(f"L{bx:.1f} {end:.1f}")
        else:
            bend = (end - ay) * 0.5
            path.append(f"C{ax:.1f} {ay + bend:.1f} {bx:.1f} {end - bend:.1f} {bx:.1f} {end:.1f}")
    end_x, end_y = points[-1]
    if below:
        path.append(f"V{end_y + below:.1f}")
    stroke = f'<path d="{"".join(path)}" fill="none" stroke="#8c96a3" stroke-width="1.3"/>'
    if not arrow:
        return stroke
    return stroke + f'<path d="M{end_x:.1f} {end_y - 0.5:.1f}l-4 -7h8z" fill="#6e7781"/>'
