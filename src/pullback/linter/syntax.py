"""Small questions about expressions, asked by the evaluation."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from .values import Value


def flag_mode(test: ast.expr, flags: frozenset[int | str]) -> Any:
    if not flags:
        return "none"
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id in ("any", "all"):
        return test.func.id
    if len(flags) == 1 and "*" not in flags:
        return "any" if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else "one"
    if isinstance(test, ast.BoolOp):
        return "all" if isinstance(test.op, ast.And) else "any"
    return "any"


def of_grad(value: Value) -> bool:
    return value.kind != "other" and value.has("grad")


def constant_index(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int)
    ):
        return -node.operand.value
    return None


def is_basic(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(is_basic(e) for e in node.elts)
    return isinstance(node, (ast.Slice, ast.Constant)) or constant_index(node) is not None


def sliced(base: Value, node: ast.Slice) -> Value:
    ends = [constant_index(part) if part is not None else None for part in (node.lower, node.upper, node.step)]
    if any(part is not None and end is None for part, end in zip((node.lower, node.upper, node.step), ends, strict=True)):
        return Value(base.all_refs(), container=base.container)
    assert base.items is not None
    return replace(base, items=base.items[slice(*ends)])


def sequence_arithmetic(node: ast.BinOp, left: Value, right: Value) -> Value | None:
    if isinstance(node.op, ast.Add) and left.container and right.container:
        if left.items is not None and right.items is not None:
            return Value(items=left.items + right.items, container=left.container, kind="other")
        return Value(left.all_refs() | right.all_refs(), container=left.container)
    if isinstance(node.op, ast.Add) and (left.container or right.container or left.sequence or right.sequence):
        return Value(left.all_refs() | right.all_refs(), container="tuple")
    if isinstance(node.op, ast.Mult) and (left.container or right.container):
        value, count = (left, node.right) if left.container else (right, node.left)
        if value.items is not None and isinstance(count, ast.Constant) and isinstance(count.value, int):
            return replace(value, items=value.items * min(count.value, 64))
        return Value(value.all_refs(), container=value.container)
    return None
