"""Comprehensions, and what one element of an iterable may be."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from .evaluate import Expressions
from .values import OTHER, UNKNOWN, Ref, Value, join

if TYPE_CHECKING:
    from .interpret import Interpreter


_WRAPPERS = ("reversed", "list", "tuple", "sorted")


def _taken_apart(node: ast.expr) -> bool:
    """Whether `Iteration.element` looks at the arguments of a call rather than at what it returns: they are evaluated there, once."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("zip", "enumerate", "range", *_WRAPPERS)


class Iteration(Expressions):
    """The part of the interpreter that iterates."""

    def of_comprehension(self: Interpreter, node: Any) -> Value:  # type: ignore[misc]
        saved = dict(self.scope)
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        first = node.generators[0]
        source = UNKNOWN if _taken_apart(first.iter) else self.value(first.iter)
        if (
            isinstance(node, (ast.ListComp, ast.GeneratorExp))
            and len(node.generators) == 1
            and not first.ifs
            and source.items is not None
            and len(source.items) <= 12
        ):
            items = []
            for item in source.items:
                self.assign(first.target, item, node)
                items.append(self.value(element))
            self.scope = saved
            return Value(items=tuple(items), container="tuple", kind="other")
        for generator in node.generators:
            known = generator is first and not _taken_apart(first.iter)
            self.assign(generator.target, self.element_of(source, first.iter) if known else self.element(generator.iter), node)
            for condition in generator.ifs:
                self.use(condition, "other")
        value = self.use(element, "other")
        self.scope = saved
        return Value(
            value.all_refs(),
            value.kind if value.kind == "tensor" else "unknown",
            value.dtype,
            container="dict" if isinstance(node, ast.DictComp) else "list",
        )

    of_listcomp = of_comprehension
    of_generatorexp = of_comprehension
    of_setcomp = of_comprehension
    of_dictcomp = of_comprehension

    def element(self: Interpreter, node: ast.expr) -> Value:  # type: ignore[misc]
        """Return what one element of an iterable may be."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "zip" and not node.keywords:
                return Value(items=tuple(self.element(a) for a in node.args), container="tuple", kind="other")
            if node.func.id == "enumerate" and node.args:
                return Value(items=(OTHER, self.element(node.args[0])), container="tuple", kind="other")
            if node.func.id == "range":
                self.value(node)
                return OTHER
            if node.func.id in _WRAPPERS and node.args:
                return self.element(node.args[0])
        return self.element_of(self.value(node), node)

    def element_of(self: Interpreter, value: Value, node: ast.expr) -> Value:  # type: ignore[misc]
        """Return what one element of an iterated value may be."""
        if value.sequence is not None:
            root = value.sequence[0]
            self.touch(value, "other", node)
            return Value(frozenset({Ref(root, "*")}), "tensor" if root in ("saved", "grad") else "unknown")
        if value.items:
            result = value.items[0]
            for item in value.items[1:]:
                result = join(result, item)
            return result
        if value.container or value.is_tensor:
            return Value(frozenset(r.through("view") for r in value.refs), value.kind, value.dtype)
        self.touch(value, "other", node)
        return UNKNOWN
