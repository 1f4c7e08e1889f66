"""What the source says about forward's parameters: which are tensors, which are not."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

from . import torch_names as names
from .nodes import walk

_TENSORS = frozenset(("Tensor", "Parameter"))
_OTHERS = frozenset(("int", "float", "bool", "str", "Callable", "ProcessGroup", "Module", "Any", "dtype", "device", "Size"))
_CONTAINERS = frozenset(("list", "List", "dict", "Dict", "tuple", "Tuple", "Sequence", "Iterable", "Mapping"))


def differentiated(backward: Iterable[ast.AST], inputs: int) -> set[int]:
    """Return the places at which backward, given as its nodes, writes out something else than None: those inputs are floating point tensors.

    Args:
        backward: The nodes.
        inputs: How many arguments forward takes; 0 where any number.
    """
    found: set[int] = set()
    for node in backward:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        value = node.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.left, ast.Tuple):
            value = value.left
        places = value.elts if isinstance(value, ast.Tuple) else [value] if inputs == 1 else []
        for index, place in enumerate(places):
            if isinstance(place, ast.Starred):
                break
            if not (isinstance(place, ast.Constant) and place.value is None):
                found.add(index)
    return found


def annotation_kind(node: ast.expr | None) -> Literal["tensor", "other"] | None:
    """Return what an annotation says, None where it leaves it open."""
    if node is None:
        return None
    words = _words(node)
    if words & _CONTAINERS:
        return "other"
    if words & _TENSORS:
        return "tensor" if not words & (_OTHERS - {"Any"}) else None
    return "other" if words & _OTHERS else None


def _words(node: ast.expr) -> set[str]:
    words: set[str] = set()
    for part in walk(node):
        if isinstance(part, ast.Name):
            words.add(part.id)
        elif isinstance(part, ast.Attribute):
            words.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words.update(part.value.translate(str.maketrans("[].|,", "     ")).split())
    return words


def default_kind(default: ast.expr | None) -> Literal["other"] | None:
    """Return what a default value says."""
    return "other" if isinstance(default, ast.Constant) and default.value is not None else None


def used_as_tensors(*methods: Iterable[ast.AST]) -> set[str]:
    """Return the names whose use in the nodes of methods tells that they are tensors: what only tensors have, or save_for_backward."""
    found: set[str] = set()
    for nodes in methods:
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.attr in names.TENSOR_EVIDENCE or _writes(node.attr):
                    found.add(node.value.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found.update(a.id for a in _tensor_arguments(node, node.func) if isinstance(a, ast.Name))
    return found


def _tensor_arguments(node: ast.Call, func: ast.Attribute) -> list[ast.expr]:
    if func.attr == "save_for_backward":
        return node.args
    torch = isinstance(func.value, ast.Name) and func.value.id in ("torch", "F")
    return node.args[:1] if torch and func.attr in names.FLOAT_RESULTS | names.LIKE | names.MATMULS else []


def _writes(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__")
