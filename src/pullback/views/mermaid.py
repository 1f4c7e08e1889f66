"""A graph as a Mermaid flowchart, which GitHub and many editors draw."""

from __future__ import annotations

from collections.abc import Iterator

from .fold import Item, fold
from .graph import Graph
from .labels import group_title, label

_SHAPES = {"op": ("[", "]"), "function": ("[[", "]]"), "leaf": ("([", "])")}


def graph_mermaid(graph: Graph) -> str:
    """Return the flowchart of a graph; repeated parts are one subgraph."""
    return "\n".join(_lines(graph))


def _lines(graph: Graph) -> Iterator[str]:
    folded = fold(graph)
    yield "flowchart TD"
    shown: list[int] = []
    for item in folded.items:
        yield from _item(item, graph=folded.graph, depth=1, prefix="", shown=shown)
    stands_for = folded.stands_for
    edges: dict[tuple[int, int, str], None] = {}
    for index in shown:
        for source, slot in folded.graph.nodes[index].sources:
            if stands_for[source] != stands_for[index]:
                values = folded.graph.nodes[source].values
                edges[stands_for[source], stands_for[index], values[slot] if slot < len(values) else ""] = None
    for source, target, value in edges:
        yield f"  n{source} -->{f'|{_quoted(value)}|' if value else ''} n{target}"
    for position, (index, _) in enumerate(folded.graph.outputs):
        yield f'  n{stands_for[index]} --> output{position}(["output"])'
    functions = [f"n{index}" for index in shown if folded.graph.nodes[index].kind == "function"]
    if functions:
        yield "  classDef custom stroke:#c9701a,stroke-width:2px"
        yield f"  class {','.join(functions)} custom"


def _item(item: Item, *, graph: Graph, depth: int, prefix: str, shown: list[int]) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(item, int):
        shown.append(item)
        about = label(graph.nodes[item], prefix)
        text = "<br>".join(_escaped(line) for line in (about.title, *about.places, *about.parameters, about.keeps, about.badge) if line)
        begin, end = _SHAPES[graph.nodes[item].kind]
        yield f'{indent}n{item}{begin}"{text}"{end}'
    elif item.items:
        yield f"{indent}subgraph g{item.first} [{_quoted(group_title(item))}]"
        for child in item.items:
            yield from _item(child, graph=graph, depth=depth + 1, prefix=item.prefix or prefix, shown=shown)
        yield f"{indent}end"
    else:
        shown.extend(range(item.first, item.first + item.size))
        yield f"{indent}n{item.first}[{_quoted(group_title(item))}]"


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Write everything that Mermaid or HTML could take for markup as an entity."""
    return "".join(c if c.isalnum() or c in " _.,:/()+-×–…[]=" else f"#{ord(c)};" for c in text)
