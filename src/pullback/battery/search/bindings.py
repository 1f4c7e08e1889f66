"""Which names of a function body stand for which parameter of forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from .roles import PASS_THROUGH
from .traits import Trait

VIEWS = frozenset("unsqueeze squeeze expand expand_as view reshape flatten clamp long int t transpose repeat".split())  # noqa: SIM905


class Bindings:
    """What the names of one function body stand for, as assignments are read in order.

    Args:
        traits: Evidence per parameter name of forward, added to.
        names: Local name, or ``ctx.attribute``, to the parameter it stands for.
        saved: Parameters handed to save_for_backward, in order (None for other values).
        weight: How much this body counts.
    """

    def __init__(self, traits: Mapping[str, Trait], names: dict[str, str], saved: list[str | None], weight: float) -> None:
        self.traits, self.names, self.saved, self.weight = traits, names, saved, weight
        self.inputs: list[str] = []
        self.members: dict[str, str] = {}
        self.pieces: dict[str, tuple[str, str]] = {}

    def who(self, node: ast.AST | None) -> str | None:
        """Return the parameter that an expression stands for, looking through ``.contiguous()`` and the like."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and (name := self.names.get(f"{node.value.id}.{node.attr}")):
                return name
            return self.who(node.value) if node.attr in ("data", "mT", "T") else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PASS_THROUGH:
            return self.who(node.func.value)
        return None

    def about(self, node: ast.AST | None) -> str | None:
        """Return the parameter that an expression is a view or a simple function of, as ``index.unsqueeze(1).expand(-1, d)`` is of ``index``."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            node = node.func.value
        return self.who(node)

    def trait(self, node: ast.AST | None) -> Trait | None:
        """Return the evidence of the parameter that an expression stands for."""
        name = self.who(node)
        return self.traits.get(name) if name else None

    def add(self, node: ast.AST | None, kind: str, weight: float) -> None:
        """Add to a kind of the parameter that an expression stands for, if it does."""
        if (trait := self.trait(node)) is not None:
            trait.score(kind, weight * self.weight)

    def member(self, node: ast.AST | None) -> str | None:
        """Return the parameter that an expression is a member of: a loop variable, a name it was unpacked to, ``steps[0]``."""
        if isinstance(node, ast.Name):
            return self.members.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "forward":
            return self.member(node.value)
        return self.who(node.value) if isinstance(node, ast.Subscript) else None

    def bind_members(self, target: ast.expr, iterated: ast.expr) -> None:
        """Note what a loop over a parameter, or over several in step, calls their members."""
        parts, targets = [iterated], [target]
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.args:
            name, several = iterated.func.id, target.elts if isinstance(target, ast.Tuple) else []
            if name in ("reversed", "list", "tuple", "iter"):
                parts = iterated.args[:1]
            elif name == "enumerate" and len(several) == 2:
                parts, targets = iterated.args[:1], several[1:]
            elif name == "zip" and len(several) == len(iterated.args):
                parts, targets = iterated.args, several
        for part, one in zip(parts, targets, strict=False):
            if isinstance(one, ast.Name) and (who := self.who(part)) is not None:
                self.members[one.id] = who

    def piece(self, node: ast.expr) -> tuple[str, str] | None:
        """Return the parameter of which an expression takes a piece, and which piece: ``k[:, t]``, or a name that stands for it."""
        if isinstance(node, ast.Name):
            return self.pieces.get(node.id)
        who = self.who(node.value) if isinstance(node, ast.Subscript) else None
        return (who, ast.dump(node.slice)) if who is not None and isinstance(node, ast.Subscript) else None

    def combine(self, left: ast.expr, right: ast.expr) -> None:
        """Note that two expressions are combined entry by entry."""
        one, other = self.piece(left), self.piece(right)
        if one is not None and other is not None and one[1] == other[1] and one[0] != other[0]:
            self.traits[one[0]].alike.add(other[0])
            self.traits[other[0]].alike.add(one[0])

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Note that `value` is assigned to `target`."""
        for name, part in _pairs(target, value):
            if (piece := self.piece(part)) is not None:
                self.pieces[name] = piece
        if isinstance(target, (ast.Tuple, ast.List)):
            self._bind_many(target.elts, value)
            return
        key = ast.unparse(target)
        if isinstance(target, ast.Subscript):
            self.add(target.value, "tensor", 0.5)
            if (trait := self.trait(target.value)) is not None:
                trait.filled = True
        elif isinstance(target, (ast.Name, ast.Attribute)):
            name = self.who(value)
            if name is not None:
                if isinstance(target, ast.Attribute):
                    self._score_kept(name)
                self.names[key] = name
            elif isinstance(target, ast.Name):
                self.names.pop(key, None)

    def _score_kept(self, name: str) -> None:
        for kind in ("float", "int", "bool"):
            self.traits[name].score(kind, 0.25 * self.weight)

    def _bind_many(self, targets: list[ast.expr], value: ast.expr) -> None:
        starred = any(isinstance(t, ast.Starred) for t in targets)
        self._note_sizes(value, len(targets), starred)
        parts = self._parts(value)
        if parts is None and not starred and (trait := self.trait(value)) is not None:
            trait.members = len(targets)
            trait.score("tensors", 1.2 * self.weight)
            trait.score("ints", 1.0 * self.weight)
        for i, target in enumerate(targets):
            if not isinstance(target, (ast.Name, ast.Attribute)):
                continue
            if parts is None and isinstance(target, ast.Name) and (whole := self.who(value)) is not None:
                self.members[target.id] = whole
            part = parts[i] if parts is not None and i < len(parts) else None
            name = part if isinstance(part, str) else self.who(part)
            if name:
                self.names[ast.unparse(target)] = name
            elif isinstance(target, ast.Name):
                self.names.pop(target.id, None)

    def _note_sizes(self, value: ast.expr, count: int, starred: bool) -> None:
        sized = value.value if isinstance(value, ast.Attribute) and value.attr == "shape" else None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size" and not value.args:
            sized = value.func.value
        if (trait := self.trait(sized)) is None:
            return
        if starred:
            trait.least = max(trait.least, count - 1)
        else:
            trait.see_rank(count)
        trait.score("tensor", self.weight)

    def _parts(self, value: ast.expr) -> list[Any] | None:
        if isinstance(value, (ast.Tuple, ast.List)):
            return list(value.elts)
        if isinstance(value, ast.Attribute) and value.attr in ("saved_tensors", "saved_variables"):
            return list(self.saved)
        if isinstance(value, ast.Name) and value.id in ("inputs", "args") and self.inputs:
            return list(self.inputs)
        return None


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment gives, and what to."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for name, part in zip(target.elts, value.elts, strict=True):
            yield from _pairs(name, part)
