"""Joining paths: what two branches leave behind, which condition implies which, what a test says about a name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from .project import dotted
from .values import UNKNOWN, Guard, Value, join

Scope = dict[str, Value]


def told_by(test: ast.expr) -> tuple[str, Literal["tensor", "other", "none"] | None, bool]:
    """Return the name that a test is about, what it says of it when it holds, and whether its failing says the opposite."""
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and isinstance(test.ops[0], ast.Is) and is_none(test.comparators[0]):
        return test.left.id, "none", False
    if isinstance(test, ast.Call) and test.args and isinstance(test.args[0], ast.Name):
        called = dotted(test.func) or ""
        if called == "torch.is_tensor":
            return test.args[0].id, "tensor", True
        if called == "isinstance" and len(test.args) == 2:
            types = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
            names = [(dotted(t) or "?").rsplit(".", 1)[-1] for t in types]
            if all(n in ("Tensor", "Parameter") for n in names):
                return test.args[0].id, "tensor", "Tensor" in names
            if all(n in ("int", "float", "bool", "str", "list", "tuple", "dict", "Number") for n in names):
                return test.args[0].id, "other", False
    return "", None, False


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def implies(guard: Guard, needed: Guard) -> bool:
    if guard.positive == needed.positive and (guard.flags == needed.flags and guard.mode == needed.mode):
        return True
    if guard.positive and needed.positive and needed.mode == "one" and guard.mode == "all" and needed.flags <= guard.flags:
        return True
    if (
        guard.positive
        and needed.positive
        and needed.mode == "any"
        and guard.mode in ("one", "all")
        and (guard.flags <= needed.flags or "*" in needed.flags)
    ):
        return True
    return guard.positive == needed.positive and guard.same_test(needed)


def merge(a: Scope, b: Scope, guard: Guard | None = None, other: Guard | None = None) -> Scope:
    merged: Scope = {}
    for name in a.keys() | b.keys():
        if name in a and name in b:
            merged[name] = join(a[name], b[name])
        else:
            value, side = (a[name], guard) if name in a else (b[name], other)
            merged[name] = replace(value, unbound=value.unbound or side) if side is not None else value
    return merged


def union(a: tuple, b: tuple) -> tuple:
    return a if a == b else (*a, *(x for x in b if x not in a))


def pair(targets: Sequence[ast.expr], items: tuple[Value, ...], star: int | None) -> Iterable[tuple[ast.expr, Value]]:
    if star is None:
        yield from zip(targets, items, strict=True)
        return
    tail = len(targets) - star - 1
    yield from zip(targets[:star], items[:star], strict=True)
    yield targets[star], Value(items=items[star : len(items) - tail], container="list", kind="other")
    yield from zip(targets[star + 1 :], items[len(items) - tail :], strict=True)


def with_item(items: tuple[Value, ...], index: ast.expr, value: Value) -> tuple[Value, ...]:
    if isinstance(index, ast.Constant) and isinstance(index.value, int) and -len(items) <= index.value < len(items):
        position = index.value % len(items)
        return (*items[:position], value, *items[position + 1 :])
    return (UNKNOWN,) * len(items)


def symbol(operator: ast.operator) -> str:
    names = {"Add": "+=", "Sub": "-=", "Mult": "*=", "Div": "/=", "Pow": "**=", "FloorDiv": "//=", "MatMult": "@=", "Mod": "%="}
    return names.get(type(operator).__name__, "op=")
