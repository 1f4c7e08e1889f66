"""The line of backward that returns a wrong gradient, written as it should be."""

from __future__ import annotations

import ast

from ..capture.calls import backward_as_written
from ..capture.source import plain, tree_of
from .probe import Probe

LONGEST = 120


def corrected_line(probe: Probe, path: str, mend: str | None) -> str | None:
    """Return the mended ``return`` statement, or None where backward's source does not allow it.

    Args:
        probe: The op; only a Function of its own with a single return in backward can be mended so.
        path: The input whose gradient is wrong, an argument's name.
        mend: The right gradient in ``returned``, ``grad_output`` and argument names, as in `diagnosis.mismatch.Fit`.
    """
    function = probe.function
    if mend is None or function is None or probe.target.described is None:
        return None
    places = {name: i for i, name in enumerate(probe.target.positional(len(probe.case.args)))}
    written = backward_as_written(function)
    if written is None:
        return None
    try:
        wanted = ast.parse(mend, mode="eval").body
    except SyntaxError:
        return None
    backward = tree_of(plain(written))
    if backward is None:
        return None
    returns = [node for node in ast.walk(backward) if isinstance(node, ast.Return)]
    if not isinstance(backward, ast.FunctionDef) or len(returns) != 1 or returns[0].value is None or path not in places:
        return None
    value = returns[0].value
    if not isinstance(value, ast.Tuple) and any(isinstance(call.returned, (tuple, list)) for call in probe.baseline.calls):
        return None
    elements = list(value.elts) if isinstance(value, ast.Tuple) else [value]
    if len(elements) <= places[path] or any(isinstance(e, ast.Starred) for e in elements):
        return None
    if any(isinstance(node, ast.Constant) and node.value is None for node in ast.walk(elements[places[path]])):
        return None
    names = {node.id for node in ast.walk(backward) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(backward) if isinstance(node, ast.Attribute)}
    cotangents = [a.arg for a in backward.args.args[1:]]
    mended = _swapped(elements, places, path, wanted) or _filled(elements, places[path], wanted, names, attributes, cotangents)
    if mended is None:
        return None
    text = f"return {', '.join(map(ast.unparse, mended))}"
    return text if len(text) <= LONGEST else None


def _swapped(elements: list[ast.expr], places: dict[str, int], path: str, wanted: ast.expr) -> list[ast.expr] | None:
    """Return the elements with two of them exchanged, for ``returned.NAME``."""
    if not isinstance(wanted, ast.Attribute) or places.get(wanted.attr, len(elements)) >= len(elements):
        return None
    new = list(elements)
    a, b = places[path], places[wanted.attr]
    new[a], new[b] = new[b], new[a]
    return new


def _filled(
    elements: list[ast.expr], at: int, wanted: ast.expr, names: set[str], attributes: set[str], cotangents: list[str]
) -> list[ast.expr] | None:
    fill = _Fill(elements[at], names, attributes, cotangents)
    filled = fill.visit(wanted)
    return None if fill.unknown or isinstance(wanted, ast.Attribute) else [*elements[:at], filled, *elements[at + 1 :]]


class _Fill(ast.NodeTransformer):
    """Puts in the present expression for ``returned``, backward's own name for ``grad_output``, and for a number the attribute of ctx."""

    def __init__(self, present: ast.expr, names: set[str], attributes: set[str], cotangents: list[str]) -> None:
        self.present = present
        self.names = names
        self.attributes = attributes
        self.cotangents = cotangents
        self.unknown = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name):
            node.func = ast.Attribute(ast.Name("torch"), node.func.id, ast.Load())
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "returned":
            return self.present
        if node.id == "grad_output":
            self.unknown = self.unknown or len(self.cotangents) != 1
            return ast.Name(self.cotangents[0]) if self.cotangents else node
        if node.id in self.names or node.id == "torch":
            return node
        if node.id in self.attributes:
            return ast.Attribute(ast.Name("ctx"), node.id, ast.Load())
        self.unknown = True
        return node
