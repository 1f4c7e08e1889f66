"""The graph that autograd built: its nodes in the order of their forward, walked without recursion."""

from __future__ import annotations

import gc
import heapq
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .. import _compat
from .._collector import without_collector

FREED_AT_ONCE = 5_000
_WAITING: list[list[Any]] = []


@dataclass(frozen=True, slots=True)
class Walk:
    """The nodes behind some tensors, in an order in which every node comes after its sources.

    Args:
        nodes: Autograd's own nodes; leaves are its AccumulateGrad nodes.
        sources: For every node, where its forward took its arguments from: ``(index of a node, which of its results)`` for each argument, None
            for one without gradient.
        roots: The same for every tensor that the walk began at.
    """

    nodes: list[Any]
    sources: list[tuple[tuple[int, int] | None, ...]]
    roots: list[tuple[int, int]]


def walk(outputs: Iterable[Tensor]) -> Walk:
    """Return the graph behind `outputs`, as far as they have one.

    Args:
        outputs: Tensors; those without a gradient are left out. A leaf gives its own AccumulateGrad node.
    """
    _free_waiting("start", {})
    with without_collector():
        starts = [start for start in map(_start, outputs) if start is not None]
        nodes, sources = _breadth_first(starts)
        order = _in_order(nodes, sources)
    place = [0] * len(nodes)
    for position, index in enumerate(order):
        place[index] = position
    moved = [tuple(source and (place[source[0]], source[1]) for source in sources[index]) for index in order]
    first = {node: index for index, node in enumerate(nodes)}
    ordered = [nodes[index] for index in order]
    if len(ordered) > FREED_AT_ONCE:
        _free_last_first([node for node, _ in starts], ordered)
    return Walk(ordered, moved, [(place[first[node]], slot) for node, slot in starts])


def leaf_of(node: Any) -> Tensor | None:
    """Return the tensor whose gradient a node accumulates, None for other nodes."""
    variable = getattr(node, "variable", None)
    return variable if isinstance(variable, Tensor) and not node.next_functions else None


def function_of(node: Any) -> type | None:
    """Return the custom Function class behind a node, None for torch's own operators."""
    return getattr(node, "_forward_cls", None)


def _start(tensor: Tensor) -> tuple[Any, int] | None:
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    return (tensor.view_as(tensor).grad_fn.next_functions[0][0], 0) if tensor.requires_grad else None  # type: ignore[union-attr]


def _breadth_first(starts: list[tuple[Any, int]]) -> tuple[list[Any], list[tuple[tuple[int, int] | None, ...]]]:
    nodes = list(dict.fromkeys(node for node, _ in starts))
    index = {node: i for i, node in enumerate(nodes)}
    sources: list[tuple[tuple[int, int] | None, ...]] = []
    for node in nodes:  # grows while it is read
        row: list[tuple[int, int] | None] = []
        for source, slot in node.next_functions:
            if source is None:
                row.append(None)
                continue
            known = index.get(source)
            if known is None:
                known = index[source] = len(nodes)
                nodes.append(source)
            row.append((known, slot))
        sources.append(tuple(row))
    return nodes, sources


def _in_order(nodes: list[Any], sources: list[tuple[tuple[int, int] | None, ...]]) -> list[int]:
    """Return the indices in the order of execution, wherever the graph allows it; leaves come just before their first use."""
    waits = [0] * len(nodes)
    for row in sources:
        for source in row:
            if source is not None:
                waits[source[0]] += 1
    made = [_compat.made_at(node) for node in nodes]
    ready = [(-made[i], -i) for i, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(-index)
        for source in sources[-index]:
            if source is None:
                continue
            waits[source[0]] -= 1
            if waits[source[0]] == 0:
                heapq.heappush(ready, (-made[source[0]], -source[0]))
    return order[::-1]


class _Canary:
    """Dies with the node whose metadata hold it."""

    __slots__ = ("__weakref__",)


def _free_last_first(roots: list[Any], nodes: list[Any]) -> None:
    """See to it that the nodes of a large graph are freed one by one.

    torch 2.13 frees a node that Python has looked at by recursion into its sources, and a chain of some 50,000 overflows the stack; one that
    Python never saw is freed by a loop. A list that holds every node lets go of the last one first, so that no node takes another with it. It
    lives as long as the roots do, and until the next run of the cyclic collector.
    """
    if _free_waiting not in gc.callbacks:
        gc.callbacks.append(_free_waiting)
    known = set(roots)
    others = [node for node in nodes if node not in known]
    for root in roots:
        canary = root.metadata["pullback"] = _Canary()
        weakref.finalize(canary, _WAITING.append, others).atexit = False


def _free_waiting(phase: str, info: dict[str, Any]) -> None:
    _WAITING.clear()
