"""`saved`: what is kept for backward, by whom, and how many bytes of memory that is."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.authored import written
from ..capture.graph import function_of, leaf_of, walk
from ..capture.held import Held, held_by
from ..capture.saved import storage_bytes
from ..report.clean import clean
from ..report.finding import Location
from . import measures
from .files import write_form
from .graph import name_of, parameter_names, tensors_of

SHOWN = 40
BAR = 20
WAYS = {"saved": "", "packed": "packed by a saved-tensor hook", "ctx": "on ctx, unseen by saved-tensor hooks"}


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps a block of memory alive.

    Args:
        node: The operator or custom Function.
        name: What its code calls the tensor: ``"x"``, ``"ctx.cache['inv']"``, ``"result"``.
        how: ``"saved"``, ``"packed"`` by a saved-tensor hook, or ``"ctx"`` (an attribute, which hooks and version checks do not see).
        value: Dtype and shape of the tensor.
        bytes: Bytes of the tensor itself, which may be a view of a larger block.
        times: How many nodes of this name keep it under this name.
        location: Where a custom Function is written.
    """

    node: str
    name: str
    how: str
    value: str
    bytes: int
    times: int = 1
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory that lives until backward.

    Args:
        bytes: Its size; a view keeps its whole block.
        holders: Who keeps it.
        anyway: Why it would live without them: ``"parameter weight"``, ``"input"``, ``"output"``; empty where it would not.
    """

    bytes: int
    holders: tuple[Holder, ...]
    anyway: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """What the graph behind some tensors keeps for backward, every block of memory once. Print it.

    Args:
        blocks: Largest first.
    """

    blocks: tuple[Block, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.bytes for block in self.blocks)

    @property
    def extra(self) -> int:
        """Bytes of the blocks that would be free without this graph: neither a leaf's nor an output's."""
        return sum(block.bytes for block in self.blocks if not block.anyway)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<pullback.Saved of {measures.size(self.bytes)} in {measures.count(len(self.blocks), 'block')}>"

    def to_text(self) -> str:
        """Return the blocks with their holders, largest first."""
        return "\n".join(_lines(self))

    def to_svg(self) -> str:
        """Return the blocks as a picture, bytes as bars."""
        from .tables import saved_svg

        return saved_svg(self)

    def to_json(self) -> str:
        """Return the blocks as JSON."""
        return json.dumps(saved_section(self))

    def to_html(self) -> str:
        """Return a page that shows the blocks, as areas and as a table: one file that needs no network."""
        from .notebook import page_of

        return page_of("kept for backward", saved_section(self))

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends with .svg, .html, .json or .txt.

        Raises:
            ValueError: for another ending.
        """
        write_form("Saved", {".svg": self.to_svg, ".html": self.to_html, ".json": self.to_json, ".txt": self.to_text}, path)

    def _repr_mimebundle_(self, include: Container[str] | None = None, exclude: Container[str] | None = None) -> dict[str, str]:
        from .notebook import bundle

        return bundle(self.to_text(), self.to_svg(), "kept for backward", saved_section(self), include, exclude)


@dataclass(slots=True)
class _Found:
    bytes: int
    holders: dict[tuple[str, str, str, str], list[Any]] = field(default_factory=dict)


def saved(y: Any, /, *, params: torch.nn.Module | Mapping[str, Tensor] | None = None) -> Saved:
    """Return what the graph behind `y` keeps for backward, and who keeps it. Nothing is run: saved-tensor hooks are not called.

    Counted are the tensors that nodes save, as saved-tensor hooks packed them, and the tensors that custom Functions hide on `ctx`: in containers,
    objects and closures. Memory that several share is counted once, and a view counts as the whole block that it keeps alive. After a backward
    without retain_graph only what is hidden on `ctx` is left.

    Args:
        y: A tensor, or a list, tuple, dict or dataclass of tensors.
        params: A module, or names of tensors: leaves are called by these names.

    Returns:
        A `Saved`; print it, or ask its `bytes`, `extra` and `blocks`.

    Raises:
        TypeError: if `y` holds no tensor, or `params` is something else.
        ValueError: if no tensor in `y` has a gradient.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.ones(1000, requires_grad=True)
        >>> kept = pb.saved((x[:10] * 2.0).exp())
        >>> kept.bytes  # of exp, its result: 10 elements; of mul, the number 2.0
        48
    """
    outputs = tensors_of(y, "saved")
    names = parameter_names(params, "saved")
    found: dict[int, _Found] = {}
    anyway: dict[int, str] = {_compat.storage_id(output): "output" for output in outputs}
    for node in walk(outputs).nodes:
        leaf = leaf_of(node)
        if leaf is not None:
            anyway[_compat.storage_id(leaf)] = _leaf_name(leaf, names)
        for held in held_by(node):
            _note(found.setdefault(_compat.storage_id(held.tensor), _Found(storage_bytes(held.tensor))), node, held)
    blocks = [Block(block.bytes, tuple(_holders(block)), anyway.get(key, "")) for key, block in found.items()]
    return Saved(tuple(sorted(blocks, key=lambda block: -block.bytes)))


def saved_section(kept: Saved) -> dict[str, Any]:
    """Return what is kept as JSON data."""
    return {
        "schema": 1,
        "kind": "saved",
        "bytes": kept.bytes,
        "extra": kept.extra,
        "blocks": [
            {"bytes": block.bytes, "anyway": block.anyway, "holders": [_holder_section(holder) for holder in block.holders]} for block in kept.blocks
        ],
    }


def _holder_section(holder: Holder) -> dict[str, Any]:
    place = {"path": holder.location.path, "line": holder.location.line} if holder.location else None
    keys = ("node", "name", "how", "value", "bytes", "times")
    return {key: getattr(holder, key) for key in keys} | {"location": place}


def _leaf_name(leaf: Tensor, names: Mapping[int, str]) -> str:
    kind = "parameter" if isinstance(leaf, torch.nn.Parameter) else "input"
    return clean(f"{kind} {names.get(id(leaf), '')}".strip(), limit=80)


def _note(block: _Found, node: Any, held: Held) -> None:
    name = name_of(node)
    value = measures.value(held.tensor.dtype, held.tensor.shape)
    entry = block.holders.setdefault((name, held.name, held.how, value), [0, _own_bytes(held.tensor), function_of(node)])
    entry[0] += 1


def _own_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; of a view, not of what it is a view of."""
    return tensor.nbytes if tensor.layout == torch.strided else storage_bytes(tensor)


def _holders(block: _Found) -> Iterable[Holder]:
    for (node, name, how, value), (times, size, function) in block.holders.items():
        location = written(function).place if function is not None else None
        yield Holder(node, clean(name, limit=80), how, value, size, times, location)


def _lines(kept: Saved) -> Iterable[str]:
    if not kept.blocks:
        yield "nothing is kept for backward"
        return
    largest = kept.blocks[0].bytes or 1
    for block in kept.blocks[:SHOWN]:
        bar = "█" * max(1, round(BAR * block.bytes / largest))
        alive = f"  lives anyway: {block.anyway}" if block.anyway else ""
        yield f"{measures.size(block.bytes):>9}  {bar}{alive}"
        for holder in block.holders:
            yield f"{'':9}  {sentence(holder, block)}"
    rest = kept.blocks[SHOWN:]
    if rest:
        yield f"{measures.size(sum(block.bytes for block in rest)):>9}  in {measures.count(len(rest), 'smaller block')}"
    yield ""
    total, blocks = measures.size(kept.bytes), measures.count(len(kept.blocks), "block")
    yield f"{total} in {blocks}, of which {measures.size(kept.extra)} would be free without this graph"


def sentence(holder: Holder, block: Block) -> str:
    """Return who keeps a block, how, and where that is written."""
    parts = [f"{holder.node}  {holder.name}  {holder.value}"]
    if holder.bytes < block.bytes:
        parts.append(f"a view of {measures.size(holder.bytes)}")
    if WAYS[holder.how]:
        parts.append(WAYS[holder.how])
    if holder.times > 1:
        parts.append(f"in {holder.times} nodes")
    if holder.location is not None:
        parts.append(measures.place(holder.location))
    return ", ".join(parts)
