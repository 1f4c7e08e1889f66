"""Where boxes and lines of a picture go: layers from sources to results, few crossings, straight long lines."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

GAP = 30.0
LINE_GAP = 12.0
ROW_GAP = 46.0
BEND_GAP = 18.0
SWEEPS = 8
SWAPS = 6
LINE_WIDTH = 10.0

Key = Hashable


@dataclass(slots=True)
class Box:
    """Something to place.

    Args:
        key: Its identity.
        width: Its width.
        height: Its height.
        tops: Where lines enter its upper edge, by what flows, as a distance from its left; others share the edge.
        bottoms: Where lines leave its lower edge, likewise.
        x: Its left edge, once placed.
        y: Its upper edge, once placed.
        layer: Its layer, once placed.
    """

    key: Key
    width: float
    height: float
    tops: dict[Key, float] = field(default_factory=dict)
    bottoms: dict[Key, float] = field(default_factory=dict)
    x: float = 0.0
    y: float = 0.0
    layer: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A line to draw: what flows, from which box to which."""

    flow: Key
    source: Key
    target: Key


@dataclass(frozen=True, slots=True)
class Line:
    """A placed line: points from the lower edge of its source to the upper edge of its target."""

    link: Link
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The size of a placed picture, and its lines; the boxes carry their own places."""

    width: float
    height: float
    lines: tuple[Line, ...]


def place(boxes: Sequence[Box], links: Sequence[Link], *, top: Sequence[Key] = (), bottom: Sequence[Key] = ()) -> Placement:
    """Place the boxes and return the lines between them. Links must not form a cycle.

    Args:
        boxes: What to place; every box's `x`, `y` and `layer` are set.
        links: What to connect.
        top: Boxes that lie above all others: where lines enter the picture.
        bottom: Boxes that lie below all others.
    """
    return _Layout(boxes, links, top, bottom).run()


class _Layout:
    def __init__(self, boxes: Sequence[Box], links: Sequence[Link], top: Sequence[Key], bottom: Sequence[Key]) -> None:
        self._boxes = {box.key: box for box in boxes}
        self._links = list(dict.fromkeys(links))
        self._top, self._bottom = top, bottom
        self._rows: list[list[Box]] = []
        self._steps: list[tuple[Box, Box, Key]] = []
        self._ways: dict[Link, list[Box]] = {}
        self._long: list[list[Box]] = []
        self._above: dict[Key, list[tuple[Box, Key]]] = {}
        self._below: dict[Key, list[tuple[Box, Key]]] = {}

    def run(self) -> Placement:
        if not self._boxes:
            return Placement(0, 0, ())
        self._assign_layers()
        self._add_waypoints()
        self._order()
        self._assign_x()
        height = self._assign_y()
        right = max(box.x + box.width for row in self._rows for box in row)
        return Placement(right, height, tuple(self._lines()))

    def _assign_layers(self) -> None:
        sources: dict[Key, list[Key]] = {key: [] for key in self._boxes}
        targets: dict[Key, list[Key]] = {key: [] for key in self._boxes}
        for link in self._links:
            sources[link.target].append(link.source)
            targets[link.source].append(link.target)
        order = _topological(sources, targets)
        base = 1 if self._top else 0
        for key in order:
            self._boxes[key].layer = max((self._boxes[source].layer + 1 for source in sources[key]), default=0 if key in set(self._top) else base)
        last = max(box.layer for box in self._boxes.values())
        for key in self._bottom:
            self._boxes[key].layer = last
        for key in reversed(order):
            if not sources[key] and targets[key] and key not in self._top:
                self._boxes[key].layer = max(base, min(self._boxes[target].layer for target in targets[key]) - 1)

    def _add_waypoints(self) -> None:
        layers = max(box.layer for box in self._boxes.values()) + 1
        self._rows = [[] for _ in range(layers)]
        for box in self._boxes.values():
            self._rows[box.layer].append(box)
        made: dict[Key, Box] = {}
        runs: dict[tuple[Key, Key], list[Box]] = {}
        stepped: set[tuple[Key, Key, Key]] = set()
        for link in self._links:
            way = [self._boxes[link.source]]
            for layer in range(way[0].layer + 1, self._boxes[link.target].layer):
                key = (link.flow, link.source, layer)
                if key not in made:
                    made[key] = Box(key, LINE_WIDTH, 0, layer=layer)
                    runs.setdefault((link.flow, link.source), []).append(made[key])
                    self._rows[layer].append(made[key])
                way.append(made[key])
            way.append(self._boxes[link.target])
            self._ways[link] = way
            for upper, lower in itertools.pairwise(way):
                if (upper.key, lower.key, link.flow) not in stepped:
                    stepped.add((upper.key, lower.key, link.flow))
                    self._steps.append((upper, lower, link.flow))
        self._long = [run for run in runs.values() if len(run) > 1]
        for upper, lower, flow in self._steps:
            self._above.setdefault(lower.key, []).append((upper, flow))
            self._below.setdefault(upper.key, []).append((lower, flow))

    def _order(self) -> None:
        best = self._order_now()
        fewest = self._crossings()
        for sweep in range(SWEEPS + 1):
            if fewest == 0:
                break
            down = sweep % 2 == 0
            if sweep:
                for row in self._rows[1:] if down else self._rows[-2::-1]:
                    self._sort_row(row, down)
            self._swap_neighbours()
            crossings = self._crossings()
            if crossings < fewest:
                fewest, best = crossings, self._order_now()
        for row in self._rows:
            row.sort(key=lambda box: best[box.key])

    def _sort_row(self, row: list[Box], down: bool) -> None:
        positions = {box.key: i for other in self._rows for i, box in enumerate(other)}
        near = self._above if down else self._below
        wish = {
            box.key: statistics.fmean(
                positions[other.key] + (_leave(other, flow) if down else _enter(other, flow)) / max(other.width, 1) for other, flow in near[box.key]
            )
            if near.get(box.key)
            else float(positions[box.key])
            for box in row
        }
        row.sort(key=lambda box: wish[box.key])

    def _swap_neighbours(self) -> None:
        """Exchange neighbours in a row as long as that avoids crossings."""
        position = self._order_now()
        for _ in range(SWAPS):
            swapped = False
            for row in self._rows:
                ends = {box.key: self._ends(box, position) for box in row}
                for i in range(len(row) - 1):
                    left, right = row[i], row[i + 1]
                    if _crossed(ends[left.key], ends[right.key]) > _crossed(ends[right.key], ends[left.key]):
                        row[i], row[i + 1] = right, left
                        position[left.key], position[right.key] = i + 1, i
                        swapped = True
            if not swapped:
                return

    def _ends(self, box: Box, position: Mapping[Key, int]) -> tuple[list[float], list[float]]:
        """Return where the lines of a box begin in the row above, and where they end in the row below."""
        above = [position[other.key] + 0.9 * _leave(other, flow) / max(other.width, 1) for other, flow in self._above.get(box.key, ())]
        below = [position[other.key] + 0.9 * _enter(other, flow) / max(other.width, 1) for other, flow in self._below.get(box.key, ())]
        return above, below

    def _order_now(self) -> dict[Key, int]:
        return {box.key: i for row in self._rows for i, box in enumerate(row)}

    def _crossings(self) -> int:
        position = self._order_now()
        by_layer: dict[int, list[tuple[float, float]]] = {}
        for upper, lower, flow in self._steps:
            start = position[upper.key] + 0.9 * _leave(upper, flow) / max(upper.width, 1)
            end = position[lower.key] + 0.9 * _enter(lower, flow) / max(lower.width, 1)
            by_layer.setdefault(upper.layer, []).append((start, end))
        total = 0
        for steps in by_layer.values():
            steps.sort()
            total += sum(a[0] < b[0] and a[1] > b[1] for i, a in enumerate(steps) for b in steps[i + 1 :])
        return total

    def _assign_x(self) -> None:
        for row in self._rows:
            x = 0.0
            for box in row:
                box.x, x = x, x + box.width + GAP
        for sweep in range(2 * SWEEPS + 1):
            down = sweep % 2 == 0
            for row in self._rows if down else self._rows[::-1]:
                self._settle(row, down)
        self._straighten()
        self._close_gaps()
        left = min(box.x for row in self._rows for box in row)
        for row in self._rows:
            for box in row:
                box.x -= left

    def _settle(self, row: list[Box], down: bool) -> None:
        """Move every box of a row to where its lines run straight, as near as the others in the row allow."""
        wishes = []
        for box in row:
            pulls = self._pulls(box, down)
            wishes.append((_weighted_median(pulls) if pulls else box.x, max(weight for _, weight in pulls) if pulls else 0.05))
        offsets = [0.0]
        for box, after in itertools.pairwise(row):
            offsets.append(offsets[-1] + box.width + self._gap(box, after))
        for box, offset, x in zip(
            row, offsets, _monotone([(wish - offset, weight) for (wish, weight), offset in zip(wishes, offsets, strict=True)]), strict=True
        ):
            box.x = x + offset

    def _gap(self, left: Box, right: Box) -> float:
        return GAP if left.key in self._boxes or right.key in self._boxes else LINE_GAP

    def _straighten(self) -> None:
        """Draw long lines straight where all of their rows have room at one x, those at the left from the left on, then the others from the right."""
        place = self._order_now()
        for run in self._long:
            run.sort(key=lambda box: box.layer)
        lines = sorted(self._long, key=lambda run: min(box.x for box in run))
        for run in (*lines, *reversed(lines)):
            low, high = -math.inf, math.inf
            for box in run:
                row, i = self._rows[box.layer], place[box.key]
                if i > 0:
                    low = max(low, row[i - 1].x + row[i - 1].width + self._gap(row[i - 1], box))
                if i + 1 < len(row):
                    high = min(high, row[i + 1].x - box.width - self._gap(box, row[i + 1]))
            if low <= high:
                wish = statistics.median(box.x for box in run)
                for box in run:
                    box.x = min(max(wish, low), high)

    def _close_gaps(self) -> None:
        """Narrow upright strips in which nothing stands: parts that no line connects drift apart while they are settled."""
        reach, moved = math.inf, 0.0
        for box in sorted((box for row in self._rows for box in row), key=lambda box: box.x):
            moved += max(0.0, box.x - reach - GAP)
            reach = box.x + box.width if reach == math.inf else max(reach, box.x + box.width)
            box.x -= moved

    def _pulls(self, box: Box, up: bool) -> list[tuple[float, float]]:
        """Return where each line of a box would run straight, and how much that matters: most for lines that pass by."""
        if up:
            return [(other.x + _leave(other, flow) - _enter(box, flow), self._weight(box, other)) for other, flow in self._above.get(box.key, ())]
        return [(other.x + _enter(other, flow) - _leave(box, flow), self._weight(box, other)) for other, flow in self._below.get(box.key, ())]

    def _weight(self, box: Box, other: Box) -> float:
        passing = (box.key not in self._boxes) + (other.key not in self._boxes)
        return (2.0, 1.0, 8.0)[passing]

    def _assign_y(self) -> float:
        y = 0.0
        bent = self._bent_layers()
        for layer, row in enumerate(self._rows):
            height = max(box.height for box in row)
            for box in row:
                lowest = height - box.height if box.key in self._boxes else 0
                box.y = y + (lowest if box.key not in self._above else lowest / 2)
                if box.key not in self._boxes:
                    box.height = height
            y += height + (0 if layer == len(self._rows) - 1 else ROW_GAP + BEND_GAP if layer in bent else ROW_GAP)
        return y

    def _bent_layers(self) -> set[int]:
        """Return the layers below which a line does not run straight down."""
        return {upper.layer for upper, lower, flow in self._steps if abs(upper.x + _leave(upper, flow) - lower.x - _enter(lower, flow)) > 1} | {
            box.layer - 1 for box in self._boxes.values() if len(self._above.get(box.key, ())) > 1
        }

    def _lines(self) -> list[Line]:
        entries = self._entries()
        lines = []
        for link, way in self._ways.items():
            source, target = way[0], way[-1]
            points = [(source.x + _leave(source, link.flow), source.y + source.height)]
            for box in way[1:-1]:
                middle = box.x + box.width / 2
                points += [(middle, box.y), (middle, box.y + box.height)]
            points.append((target.x + entries[link], target.y))
            lines.append(Line(link, tuple(points)))
        return lines

    def _entries(self) -> Mapping[Link, float]:
        """Spread lines over the upper edge of their targets, in the order in which they come."""
        arriving: dict[Key, list[tuple[float, Link]]] = {}
        for link, way in self._ways.items():
            before = way[-2]
            arriving.setdefault(link.target, []).append((before.x + _leave(before, link.flow), link))
        entries: dict[Link, float] = {}
        for key, links in arriving.items():
            box = self._boxes[key]
            step = min(18.0, box.width / (len(links) + 1))
            for i, (_, link) in enumerate(sorted(links, key=lambda pair: pair[0])):
                entries[link] = box.tops.get(link.flow, box.width / 2 + (i - (len(links) - 1) / 2) * step)
        return entries


def _crossed(left: tuple[list[float], list[float]], right: tuple[list[float], list[float]]) -> int:
    """Return how many lines of two neighbours cross, by where their other ends are."""
    return sum(a > b for ours, theirs in zip(left, right, strict=True) for a in ours for b in theirs)


def _leave(box: Box, flow: Key) -> float:
    return box.bottoms.get(flow, box.width / 2)


def _enter(box: Box, flow: Key) -> float:
    return box.tops.get(flow, box.width / 2)


def _weighted_median(pulls: list[tuple[float, float]]) -> float:
    pulls.sort()
    half = sum(weight for _, weight in pulls) / 2
    reached = 0.0
    for i, (value, weight) in enumerate(pulls):
        reached += weight
        if reached > half:
            return value
        if reached == half:
            return (value + pulls[i + 1][0]) / 2
    return pulls[-1][0]


def _topological(sources: Mapping[Key, list[Key]], targets: Mapping[Key, list[Key]]) -> list[Key]:
    waits = {key: len(found) for key, found in sources.items()}
    order = [key for key, count in waits.items() if count == 0]
    for key in order:
        for target in targets[key]:
            waits[target] -= 1
            if waits[target] == 0:
                order.append(target)
    return order


def _monotone(wishes: Sequence[tuple[float, float]]) -> list[float]:
    """Return the nondecreasing numbers nearest to weighted wishes in the sense of least squares (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for wish, weight in wishes:
        blocks.append([wish, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            value, weight, count = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + value * weight) / (last[1] + weight)
            last[1] += weight
            last[2] += count
    return [value for value, _, count in blocks for _ in range(int(count))]
