"""Repeated parts of a graph, found and folded: twelve equal layers become one, times twelve."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from .graph import RESHAPES, Graph, Node

DRAW_RESHAPES_UP_TO = 30
LEVELS = 6
SHOWN = 300
SECTIONS = 40
FRAMED = 3
PERIODS = 48
SPARES = 3
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring parts of a graph that are shown as one.

    Args:
        items: What is in it; of a repetition, what is in its first copy.
        times: How often it is there; 1 for a module, and for a section, which stands for its nodes without showing them.
        title: What it is called: ``"layers.0–11"``; may be empty.
        first: Index of its first node.
        size: Number of nodes in one copy.
        prefix: The module that all parameters of the first copy are in: ``"layers.0"``.
        chained: Whether each copy takes something from the one before.
    """

    items: tuple[Item, ...]
    times: int
    title: str
    first: int
    size: int
    prefix: str = ""
    chained: bool = False


Item = int | Group


@dataclass(frozen=True, slots=True)
class Folded:
    """A graph as it is shown.

    Args:
        graph: The graph, reshapes left out where it is large.
        items: Nodes and groups in the order of the forward.
        stands_for: For every node the index of the node that is shown in its place.
        kept: For every node its index in the whole graph.
        left_out: How many reshapes are not shown.
    """

    graph: Graph
    items: tuple[Item, ...]
    stands_for: list[int]
    kept: Sequence[int]
    left_out: int = 0


def fold(graph: Graph) -> Folded:
    """Return the graph with repeated parts folded, and stretches of a long rest as sections that do not show what is in them."""
    return _folded(graph, _sectioned)


def fold_whole(graph: Graph) -> Folded:
    """Return the graph with repeated parts folded and nothing else: every operator that is not a copy is in it, however many there are."""
    return _folded(graph, lambda items, stands_for: items)


def _folded(graph: Graph, sectioned: Callable[[list[Item], list[int]], list[Item]]) -> Folded:
    drawn, kept = (graph, range(len(graph.nodes))) if len(graph.nodes) <= DRAW_RESHAPES_UP_TO else without_reshapes(graph)
    stands_for = list(range(len(drawn.nodes)))
    items = _by_module(sectioned(_Folder(drawn, stands_for).run(), stands_for), drawn.nodes, "")
    return Folded(drawn, tuple(items), stands_for, kept, len(graph.nodes) - len(drawn.nodes))


def without_reshapes(graph: Graph) -> tuple[Graph, Sequence[int]]:
    """Return the graph without the operators that only change a shape or strides, and the indices of the others.

    The arguments of a left out operator go on to who uses it.
    """
    through: list[tuple[int, int] | None] = []
    place: list[int] = []
    kept: list[Node] = []
    indices: list[int] = []
    roots = {index for index, _ in graph.outputs}

    def real(source: tuple[int, int]) -> tuple[int, int]:
        return through[source[0]] or (place[source[0]], source[1])

    for index, node in enumerate(graph.nodes):
        sources = tuple(map(real, node.sources))
        if node.kind == "op" and node.name in RESHAPES and len(sources) == 1 and not node.parameters and index not in roots:
            through.append(sources[0])
            place.append(-1)
            continue
        through.append(None)
        place.append(len(kept))
        kept.append(replace(node, sources=sources) if sources != node.sources else node)
        indices.append(index)
    return Graph(tuple(kept), tuple(map(real, graph.outputs))), indices


def _sectioned(items: list[Item], stands_for: list[int]) -> list[Item]:
    """Return at most `SHOWN` items: where there are more, stretches of equal length stand for what is in them."""
    if len(items) <= SHOWN:
        return items
    step = -(-len(items) // SECTIONS)
    sections: list[Item] = []
    for start in range(0, len(items), step):
        part = items[start : start + step]
        first, size = _first(part[0]), sum(map(extent, part))
        stands_for[first : first + size] = [first] * size
        sections.append(Group((), 1, "", first, size))
    return sections


def _by_module(items: list[Item], nodes: Sequence[Node], inside: str) -> list[Item]:
    """Return the items with neighbours of one module in a group of its name, but for modules that only hold other groups.

    Operators without parameters go with the module around them.
    """
    paths = [_module_of(nodes[_first(item) : _first(item) + extent(item)]) for item in items]
    heads = [_next_part(path, inside) for path in paths]
    named = [i for i, head in enumerate(heads) if head]
    result: list[Item] = []
    end = 0
    for head, members in itertools.groupby(named, key=lambda i: heads[i]):
        run = list(members)
        start, stop = run[0], run[-1] + 1
        if len(run) < FRAMED or not head:
            continue
        result += items[end:start]
        part = _by_module(items[start:stop], nodes, head)
        if stop - start == len(items) or sum(isinstance(item, Group) for item in part) > 1:
            result += part
        else:
            result.append(Group(tuple(part), 1, head, _first(part[0]), sum(map(extent, part)), head))
        end = stop
    return result + items[end:]


def _next_part(path: str, inside: str) -> str:
    """Return `path` up to one part more than `inside`; empty where it goes no further."""
    depth = len(inside.split(".")) if inside else 0
    parts = path.split(".") if path else []
    return ".".join(parts[: depth + 1]) if len(parts) > depth else ""


def nodes_in(items: Iterable[Item]) -> Iterator[int]:
    """Yield the indices of the nodes that are shown, in order."""
    stack = list(items)[::-1]
    while stack:
        item = stack.pop()
        if isinstance(item, Group):
            stack.extend(item.items[::-1])
        else:
            yield item


def extent(item: Item) -> int:
    """Return how many nodes an item stands for."""
    return item.size * item.times if isinstance(item, Group) else 1


class _Folder:
    def __init__(self, graph: Graph, stands_for: list[int]) -> None:
        self._graph, self._stands_for = graph, stands_for
        self._cuts = _cuts(graph)

    def run(self) -> list[Item]:
        items: list[Item] = list(range(len(self._graph.nodes)))
        tokens = _tokens(self._graph)
        for _ in range(LEVELS):
            runs = _repetitions(tokens)
            if not runs:
                break
            items, tokens = self._replace(items, tokens, runs)
        return items

    def _replace(self, items: list[Item], tokens: list[int], runs: list[tuple[int, int, int]]) -> tuple[list[Item], list[int]]:
        new_items: list[Item] = []
        new_tokens: list[int] = []
        known: dict[tuple[object, ...], int] = {}
        fresh = max(tokens) + 1
        end = 0
        for start, period, length in runs:
            start, times = self._aligned(items, max(start, end), period, start + length)
            if times < 2 or start < end:
                continue
            new_items += items[end:start]
            new_tokens += tokens[end:start]
            new_items.append(self._group(items[start : start + period], times, items, start))
            new_tokens.append(known.setdefault((times, *tokens[start : start + period]), fresh + len(known)))
            end = start + period * times
        return new_items + items[end:], new_tokens + tokens[end:]

    def _aligned(self, items: Sequence[Item], start: int, period: int, stop: int) -> tuple[int, int]:
        """Choose where copies begin: as far left as possible, where fewest tensors cross, one copy given up for it where there are many."""
        times = (stop - start) // period
        if times < 2:
            return start, 0
        slack = stop - start - times * period
        offsets = [(self._cuts[_first(items[start + o])], o) for o in range(slack + 1)]
        if times > SPARES and slack < period - 1:
            offsets += [(self._cuts[_first(items[start + o])] + 0.5, o) for o in range(slack + 1, period)]
        offset = min(offsets)[1]
        return start + offset, (stop - start - offset) // period

    def _group(self, body: list[Item], times: int, items: Sequence[Item], start: int) -> Group:
        first, size = _first(body[0]), sum(map(extent, body))
        for copy in range(1, times):
            at = first + copy * size
            self._stands_for[at : at + size] = self._stands_for[first : first + size]
        nodes = self._graph.nodes
        begin, end = (_module_of(nodes[at : at + size]) for at in (first, first + (times - 1) * size))
        second = range(first + size, first + 2 * size)
        chained = any(first <= source < first + size for index in second for source, _ in nodes[index].sources)
        return Group(tuple(body), times, self._title(begin, end), first, size, begin, chained)

    def _title(self, begin: str, end: str) -> str:
        """Return what the modules of the first and the last copy have in common: ``"layers.0–11"``."""
        if begin == end:
            return begin
        a, b = begin.split("."), end.split(".")
        number = next((i for i, (left, right) in enumerate(zip(a, b, strict=False)) if left != right), None)
        if number is None or not (a[number].isdigit() and b[number].isdigit()):
            return ""
        return ".".join([*a[:number], f"{a[number]}–{b[number]}"])


def _first(item: Item) -> int:
    return item.first if isinstance(item, Group) else item


def _module_of(nodes: Iterable[Node]) -> str:
    """Return the module that the parameters of all nodes are in; empty where there is none."""
    return _common({parameter.name.rpartition(".")[0] for node in nodes for parameter in node.parameters})


def _common(paths: set[str]) -> str:
    """Return the longest dotted beginning that all paths share."""
    if not paths:
        return ""
    split = [path.split(".") for path in sorted(paths)]
    shared = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _tokens(graph: Graph) -> list[int]:
    """Return a number for every node; equal where nodes do the same with arguments that lie equally far back."""
    known: dict[tuple[object, ...], int] = {}
    uses = [0] * len(graph.nodes)
    for node in graph.nodes:
        for source, _ in node.sources:
            uses[source] += 1
    tokens = []
    for index, node in enumerate(graph.nodes):
        reach = tuple(
            (-1 - source, slot) if graph.nodes[source].kind == "leaf" and uses[source] > 1 else (index - source, slot)
            for source, slot in node.sources
        )
        names = tuple((_NUMBER.sub("#", parameter.name), parameter.value) for parameter in node.parameters)
        name = _NUMBER.sub("#", node.name) if node.kind == "leaf" else node.name
        key = (node.kind, name, node.values, reach, names, len(node.saved), node.forward, node.kind == "leaf" and uses[index] > 1)
        tokens.append(known.setdefault(key, len(known)))
    return tokens


def _repetitions(tokens: list[int]) -> list[tuple[int, int, int]]:
    """Return runs ``(start, period, length)`` in which every token equals the one a period before, smallest periods first found, none overlapping."""
    if len(tokens) < 4:
        return []
    sequence = torch.tensor(tokens, device="cpu")
    taken = torch.zeros(len(tokens), dtype=torch.bool, device="cpu")
    runs: list[tuple[int, int, int]] = []
    for period in _periods(sequence):
        same = (sequence[:-period] == sequence[period:]) & ~taken[:-period] & ~taken[period:]
        for start, length in _true_runs(same):
            copies = (length + period) // period
            if copies >= 2 and period * (copies - 1) >= 4 and (copies > 2 or period >= 6) and not bool(taken[start : start + length + period].any()):
                runs.append((start, period, length + period))
                taken[start : start + length + period] = True
    return sorted(runs)


def _periods(sequence: torch.Tensor) -> list[int]:
    """Return likely periods, smallest first: the commonest distances between a token and its next equal."""
    order = torch.argsort(sequence, stable=True)
    ranked = sequence[order]
    distances = (order[1:] - order[:-1])[ranked[1:] == ranked[:-1]]
    if not len(distances):
        return []
    values, counts = torch.unique(distances, return_counts=True)
    best = torch.argsort(values * counts, descending=True, stable=True)[:PERIODS]
    return sorted(int(value) for value in values[best])


def _true_runs(flags: torch.Tensor) -> Iterator[tuple[int, int]]:
    none = torch.zeros(1, dtype=torch.int8, device="cpu")
    edges = torch.diff(flags.to(torch.int8), prepend=none, append=none)
    starts, ends = torch.nonzero(edges == 1).flatten().tolist(), torch.nonzero(edges == -1).flatten().tolist()
    yield from ((start, end - start) for start, end in zip(starts, ends, strict=True))


def _cuts(graph: Graph) -> list[int]:
    """Return for every place between nodes how many nodes before it are used at or after it."""
    last = list(range(len(graph.nodes)))
    for index, node in enumerate(graph.nodes):
        for source, _ in node.sources:
            last[source] = index
    steps = [0] * (len(graph.nodes) + 2)
    for index, end in enumerate(last):
        steps[index + 1] += 1
        steps[end + 1] -= 1
    cuts, running = [], 0
    for step in steps:
        running += step
        cuts.append(running)
    return cuts
