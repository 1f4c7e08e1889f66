"""`graph`: what autograd built behind a tensor, as data that every output is drawn from."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from .. import _compat
from .._collector import without_collector
from ..capture.authored import Written, written
from ..capture.graph import Walk, function_of, leaf_of, walk
from ..capture.held import held_by
from ..capture.saved import storage_bytes
from ..report.clean import clean
from ..report.finding import Finding, Location
from ..report.report import Report
from ..trees import leaves
from . import measures
from .files import write_form

Kind = Literal["op", "function", "leaf"]
RESHAPES = frozenset({"t", "transpose", "permute", "view", "unsafe_view", "reshape_alias", "expand", "unsqueeze", "squeeze", "alias"})
NAME_LIMIT = 60


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a node uses: its name in the model (or ``"parameter"``), its dtype and shape, and whether it is one."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that a node keeps for backward: what the code calls it, dtype and shape, and the bytes of the memory it keeps alive."""

    name: str
    value: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """One operator, custom Function or leaf of a graph.

    Args:
        kind: ``"op"``, ``"function"`` (custom) or ``"leaf"``.
        name: ``"addmm"``, the Function's class name, or the leaf's name.
        values: Dtype and shape of every result of its forward.
        sources: What its forward took: ``(index of a node, which of its results)``.
        parameters: The parameters it uses; they have no nodes of their own.
        saved: What it keeps for backward.
        forward: Where a custom Function's forward is written.
        backward: Where its backward is written.
        findings: Codes of what a check found about it.
        subject: A custom Function's qualified name, as findings call it.
    """

    kind: Kind
    name: str
    values: tuple[str, ...]
    sources: tuple[tuple[int, int], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    forward: Location | None = None
    backward: Location | None = None
    findings: tuple[str, ...] = ()
    subject: str = ""

    @property
    def saved_bytes(self) -> int:
        """Bytes that it keeps, memory shared with other nodes included."""
        return sum(tensor.bytes for tensor in self.saved)


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph behind some tensors. Print it, or write it with `save`.

    Args:
        nodes: In the order of their forward; every node comes after its sources.
        outputs: The tensors it was asked for: ``(index of a node, which of its results)``.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<pullback.Graph of {measures.count(len(self.nodes), 'node')}>"

    def to_text(self, *, width: int = 100) -> str:
        """Return the graph as an indented list in the order of the forward, repeated parts once."""
        from .text import graph_text

        return graph_text(self, width)

    def to_svg(self) -> str:
        """Return the graph as a picture: forward runs down, backward up; repeated parts are drawn once."""
        from .svg import graph_svg

        return graph_svg(self)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, repeated parts once."""
        from .mermaid import graph_mermaid

        return graph_mermaid(self)

    def to_json(self) -> str:
        """Return the graph as JSON, with every node."""
        from .sections import graph_section

        return json.dumps(graph_section(self))

    def to_html(self) -> str:
        """Return a page that shows the graph, to be searched and unfolded: one file that needs no network."""
        from .notebook import page_of
        from .sections import graph_section

        return page_of("graph", graph_section(self))

    def save(self, path: str | Path) -> None:
        """Write the graph to a file, in the form that its name ends with: .svg, .html, .mmd, .json or .txt.

        Raises:
            ValueError: for another ending.
        """
        write_form("Graph", {".svg": self.to_svg, ".html": self.to_html, ".mmd": self.to_mermaid, ".json": self.to_json, ".txt": self.to_text}, path)

    def _repr_mimebundle_(self, include: Container[str] | None = None, exclude: Container[str] | None = None) -> dict[str, str]:
        from .notebook import bundle
        from .sections import graph_section

        return bundle(self.to_text(), self.to_svg(), "graph", graph_section(self), include, exclude)


def graph(y: Any, /, *, params: torch.nn.Module | Mapping[str, Tensor] | None = None, findings: Report | Iterable[Finding] = ()) -> Graph:
    """Return the graph that autograd built behind `y`. Nothing is run, and the graph can still be used for a backward.

    Args:
        y: A tensor, or a list, tuple, dict or dataclass of tensors.
        params: A module, or names of tensors: leaves get these names. Parameters are drawn inside the node that uses them.
        findings: A report of `pullback.check`, or findings: a custom Function that errors and warnings speak of bears their codes as a badge.

    Returns:
        A `Graph`; print it, show it in a notebook, or write it with its `save`.

    Raises:
        TypeError: if `y` holds no tensor, or `params` or `findings` is something else.
        ValueError: if no tensor in `y` has a gradient.

    Example:
        >>> import torch, pullback as pb
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
        >>> print(pb.graph(model(torch.ones(2, 3)), params=model))
        1  addmm  float32 [2, 4]  with 0.bias, weight  keeps mat1  24 B
        2  tanh  float32 [2, 4]  keeps result  32 B
        <BLANKLINE>
        2 nodes
    """
    outputs = tensors_of(y, "graph")
    names = parameter_names(params, "graph")
    badges = _codes_by_subject(findings)
    walked = walk(outputs)
    with without_collector():
        return _Builder(walked, names, badges).build()


def _codes_by_subject(findings: Any) -> dict[str, tuple[str, ...]]:
    found = list(findings.findings if isinstance(findings, Report) else findings) if isinstance(findings, (Report, Iterable)) else [findings]
    if not all(isinstance(finding, Finding) for finding in found):
        raise TypeError(f"pb.graph: findings must be a report of pullback.check or findings, got {type(findings).__name__}")
    codes: dict[str, dict[str, None]] = {}
    for finding in found:
        if finding.severity != "note":
            codes.setdefault(finding.subject, {})[finding.code] = None
    return {subject: tuple(sorted(known)) for subject, known in codes.items()}


def tensors_of(y: Any, caller: str) -> list[Tensor]:
    """Return the tensors in `y` that have a gradient, for the public function `caller`.

    Raises:
        TypeError: if `y` holds no tensor.
        ValueError: if none has a gradient.
    """
    tensors = [leaf for _, leaf in leaves(y) if isinstance(leaf, Tensor)]
    if not tensors:
        raise TypeError(f"pb.{caller}: y must be a tensor, or a list, tuple, dict or dataclass of tensors; got {type(y).__name__} without any")
    live = [tensor for tensor in tensors if tensor.requires_grad]
    if not live:
        raise ValueError(
            f"pb.{caller}: y does not require grad, so autograd built nothing behind it. Either no argument requires grad, "
            "or the way from it to y is cut: torch.no_grad, detach, .data, numpy, .item(), an integer type, or a forward that was called directly"
        )
    return live


def parameter_names(params: Any, caller: str) -> dict[int, str]:
    """Return the names of parameters by the ids of their tensors.

    Raises:
        TypeError: for something else than a module or a mapping of tensors.
    """
    if params is None:
        return {}
    if isinstance(params, torch.nn.Module):
        return {id(tensor): name for name, tensor in params.named_parameters(remove_duplicate=True)}
    if isinstance(params, Mapping) and all(isinstance(tensor, Tensor) for tensor in params.values()):
        return {id(tensor): str(name) for name, tensor in params.items()}
    raise TypeError(f"pb.{caller}: params must be a module or a mapping of names to tensors, got {type(params).__name__}")


def name_of(node: Any) -> str:
    """Return the name of a node: a Function's class name, or torch's operator: ``"addmm"`` for AddmmBackward0."""
    function = function_of(node)
    return clean(_written(function).name, limit=NAME_LIMIT) if function is not None else _operator(node.name())


@functools.lru_cache(maxsize=4096)
def _operator(name: str) -> str:
    bare = re.sub(r"Backward\d*$", "", name.rpartition("::")[2] if "<" not in name else name)
    return clean(re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", bare).lower(), limit=NAME_LIMIT)


class _Builder:
    """Turns autograd's nodes into `Node`s; parameters, and reshapes of them, go into the nodes that use them."""

    def __init__(self, walked: Walk, names: Mapping[int, str], badges: Mapping[str, tuple[str, ...]]) -> None:
        self._walked, self._names, self._badges = walked, names, badges
        self._inside: dict[int, Parameter] = {}
        self._unnamed = itertools.count(1)

    def build(self) -> Graph:
        walked = self._walked
        roots = {index for index, _ in walked.roots}
        place: dict[int, int] = {}
        nodes: list[Node] = []
        for index, (node, sources) in enumerate(zip(walked.nodes, walked.sources, strict=True)):
            live = [source for source in sources if source is not None]
            parameter = None if index in roots else self._parameter(node, [source for source, _ in live])
            if parameter is not None:
                self._inside[index] = parameter
                continue
            place[index] = len(nodes)
            nodes.append(self._node(node, live, place))
        return Graph(tuple(nodes), tuple((place[index], slot) for index, slot in walked.roots))

    def _parameter(self, node: Any, sources: list[int]) -> Parameter | None:
        leaf = leaf_of(node)
        if leaf is not None:
            return self._as_parameter(leaf) if isinstance(leaf, torch.nn.Parameter) else None
        if len(sources) == 1 and sources[0] in self._inside and function_of(node) is None and name_of(node) in (*RESHAPES, "to_copy"):
            return self._inside[sources[0]]
        return None

    def _as_parameter(self, leaf: Tensor) -> Parameter:
        return Parameter(clean(self._names.get(id(leaf), "parameter"), limit=NAME_LIMIT), measures.value(leaf.dtype, leaf.shape))

    def _node(self, node: Any, sources: list[tuple[int, int]], place: Mapping[int, int]) -> Node:
        values = tuple(measures.value(result.dtype, result.shape) for result in _compat.results_of(node))
        leaf = leaf_of(node)
        if leaf is not None:
            name = self._names.get(id(leaf)) or ("parameter" if isinstance(leaf, torch.nn.Parameter) else f"input {next(self._unnamed)}")
            return Node("leaf", clean(name, limit=NAME_LIMIT), (measures.value(leaf.dtype, leaf.shape),))
        function = function_of(node)
        known = _written(function) if function is not None else None
        return Node(
            "op" if function is None else "function",
            name_of(node),
            values,
            tuple((place[index], slot) for index, slot in sources if index in place),
            tuple(self._inside[index] for index, _ in sources if index in self._inside),
            tuple(_saved(node)),
            forward=known.forward if known else None,
            backward=known.backward if known else None,
            findings=self._badges.get(known.subject, ()) if known else (),
            subject=known.subject if known else "",
        )


def _saved(node: Any) -> Iterable[SavedTensor]:
    for held in held_by(node):
        yield SavedTensor(_shown(held.name), measures.value(held.tensor.dtype, held.tensor.shape), storage_bytes(held.tensor))


@functools.lru_cache(maxsize=4096)
def _shown(name: str) -> str:
    return clean(name, limit=NAME_LIMIT)


@functools.lru_cache(maxsize=1024)
def _written(function: type) -> Written:
    return written(function)
