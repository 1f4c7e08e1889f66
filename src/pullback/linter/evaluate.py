"""Abstract evaluation of expressions: from syntax to `Value`."""

from __future__ import annotations

import ast
import builtins
import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from . import torch_names as names
from .events import AttributeRead, CtxRead, FreeRead, SavedRead, Slice, StateRead, Test
from .project import dotted
from .syntax import constant_index, flag_mode, is_basic, of_grad, sequence_arithmetic, sliced
from .values import NONE, OTHER, UNKNOWN, Closure, Guard, Ref, Value, derived, join

if TYPE_CHECKING:
    from .interpret import Interpreter

_BUILTINS = frozenset(dir(builtins))
_NO_GUARD_FLAGS: frozenset[int | str] = frozenset()


@functools.cache
def _handler(kind: type[ast.expr]) -> str:
    return f"of_{kind.__name__.lower()}"


class Expressions:
    """The part of the interpreter that reads expressions."""

    def value(self: Interpreter, node: ast.expr) -> Value:  # type: ignore[misc]
        """Return what an expression may be, without counting it as a use."""
        method = getattr(self, _handler(type(node)), None)
        return method(node) if method is not None else self.of_other(node)

    def use(self: Interpreter, node: ast.expr, how: str) -> Value:  # type: ignore[misc]
        """Evaluate an expression whose result takes part in something."""
        value = self.value(node)
        self.touch(value, how, node)
        return value

    def of_other(self: Interpreter, node: ast.expr) -> Value:  # type: ignore[misc]
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.use(child, "other")
        return UNKNOWN

    def of_constant(self, node: ast.Constant) -> Value:
        return NONE if node.value is None else OTHER

    def of_name(self: Interpreter, node: ast.Name) -> Value:  # type: ignore[misc]
        if node.id in self.scope:
            return self.read_name(node, self.scope[node.id])
        if node.id in self.outer:
            return self.outer[node.id]
        return self._free(node)

    def _free(self: Interpreter, node: ast.Name) -> Value:  # type: ignore[misc]
        name = node.id
        if name == self.owner.name:
            return Value(kind="class")
        definition = self.source.definitions.get(name)
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Value(closure=Closure(definition, self.source), kind="other")
        if isinstance(definition, ast.ClassDef):
            return Value(named=name, kind="other")
        if name in self.source.imports:
            return Value(named=self.source.imports[name])
        if name in self.globals or definition is not None:
            self.emit(FreeRead, node, name=name)
            if name in self.globals:
                self.emit(StateRead, node, owner="global", name=name)
            return Value(frozenset({Ref("global", name)}))
        if name in _BUILTINS:
            return Value(named=f"builtins.{name}", kind="other")
        self.emit(FreeRead, node, name=name)
        return Value(frozenset({Ref("global", name)}))

    def of_attribute(self: Interpreter, node: ast.Attribute) -> Value:  # type: ignore[misc]
        base = self.value(node.value)
        if base.kind == "ctx":
            return self._ctx_attribute(node)
        if base.named:
            return Value(named=f"{base.named}.{node.attr}", kind="class" if node.attr == "__class__" else "unknown")
        if base.kind == "class":
            return self._class_attribute(node)
        if node.attr == "requires_grad":
            return self._requires_grad(node, base)
        if node.attr in names.META_ATTRIBUTES:
            self.touch(base, "meta", node)
            return OTHER
        if node.attr in names.VIEW_ATTRIBUTES and base.kind != "other":
            return base.through("view")
        if base.has("saved", "is") or base.has("input", "is"):
            self.emit(AttributeRead, node, value=base, attribute=node.attr)
        self.touch(base, "other", node)
        return UNKNOWN

    def _ctx_attribute(self: Interpreter, node: ast.Attribute) -> Value:  # type: ignore[misc]
        if node.attr in ("saved_tensors", "saved_variables"):
            event = self.emit(SavedRead, node, before=self.saved_reads, spelling=node.attr)
            self.saved_reads = (*self.saved_reads, event)  # type: ignore[assignment]
            return self.saved_value()
        if node.attr == "needs_input_grad":
            if self.flag_sink is not None:
                self.flag_sink.append("*")
            return Value(sequence=("needs", 0), kind="other")
        self.emit(CtxRead, node, attribute=node.attr)
        if node.attr in self.memory.attributes:
            known = self.memory.attributes[node.attr]
            return replace(known, refs=known.refs | {Ref("ctx", node.attr)}, unbound=None)
        return Value(frozenset({Ref("ctx", node.attr)}))

    def saved_value(self: Interpreter) -> Value:  # type: ignore[misc]
        if self.memory.saved is not None:
            return Value(items=tuple(self.member("saved", i) for i in range(len(self.memory.saved))), container="tuple", kind="other")
        return Value(sequence=("saved", 0), kind="other")

    def _class_attribute(self: Interpreter, node: ast.Attribute) -> Value:  # type: ignore[misc]
        found = self.project.lookup(self.owner_source, self.owner, node.attr)
        if found and isinstance(found[1].node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Value(closure=Closure(found[1].node, found[1].source, owner=found[0]), kind="other")
        self.emit(StateRead, node, owner="class", name=node.attr)
        return Value(frozenset({Ref("class", node.attr)}))

    def _requires_grad(self: Interpreter, node: ast.Attribute, base: Value) -> Value:  # type: ignore[misc]
        if base.refs:
            self.emit(AttributeRead, node, value=base, attribute="requires_grad")
        refs = frozenset(Ref("requires", r.key, r.how) for r in base.refs if r.root == "input" and r.how != "from")
        if self.flag_sink is not None:
            self.flag_sink.extend(r.key for r in refs)
        return Value(refs, "other")

    def of_subscript(self: Interpreter, node: ast.Subscript) -> Value:  # type: ignore[misc]
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            self._slice_length(node.slice)
        index = constant_index(node.slice)
        if base.sequence is not None:
            return self._of_sequence(base, node.slice, index)
        if base.items is not None:
            if index is not None and -len(base.items) <= index < len(base.items):
                return base.items[index]
            if isinstance(node.slice, ast.Slice):
                return sliced(base, node.slice)
            self.use(node.slice, "operand")
            return Value(base.all_refs())
        if base.kind == "other" and not base.container:
            self.value(node.slice)
            return replace(OTHER, refs=base.refs)
        if base.named:
            self.value(node.slice)
            return UNKNOWN
        if base.container in ("tuple", "list"):
            return replace(base, container=None if index is not None else base.container)
        if base.container == "dict":
            return Value(base.all_refs())
        key = self.use(node.slice, "operand")
        if is_basic(node.slice):
            return Value(frozenset(r.through("view") for r in base.refs), base.kind, base.dtype)
        self.touch(base, "operand", node)
        return derived(base, key, kind=base.kind, dtype=base.dtype)

    def _of_sequence(self: Interpreter, base: Value, slice_node: ast.expr, index: int | None) -> Value:  # type: ignore[misc]
        assert base.sequence is not None
        root, offset = base.sequence
        if index is not None and index >= 0:
            if root == "needs" and self.flag_sink is not None:
                if self.flag_sink and self.flag_sink[-1] == "*":
                    self.flag_sink.pop()
                self.flag_sink.append(offset + index)
            return self.member(root, offset + index)
        if isinstance(slice_node, ast.Slice) and slice_node.upper is None and slice_node.step is None:
            start = constant_index(slice_node.lower) if slice_node.lower is not None else 0
            if start is not None and start >= 0:
                return Value(sequence=(root, offset + start), kind="other")
        return Value(frozenset({Ref(root, "*")}), "tensor" if root in ("saved", "grad") else "unknown")

    def _slice_length(self: Interpreter, node: ast.Slice) -> None:  # type: ignore[misc]
        if node.upper is None and node.step is None and isinstance(node.lower, ast.UnaryOp) and isinstance(node.lower.op, ast.USub):
            if not isinstance(node.lower.operand, ast.Constant):
                self.emit(Slice, node.lower, length=self.value(node.lower.operand), text_node=node.lower)
            return
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.value(part)

    def of_slice(self: Interpreter, node: ast.Slice) -> Value:  # type: ignore[misc]
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.value(part)
        return OTHER

    def of_binop(self: Interpreter, node: ast.BinOp) -> Value:  # type: ignore[misc]
        left, right = self.value(node.left), self.value(node.right)
        self.touch(left, "operand", node)
        self.touch(right, "operand", node)
        sequence = sequence_arithmetic(node, left, right)
        if sequence is not None:
            return sequence
        tensor = left.is_tensor or right.is_tensor
        if isinstance(node.op, ast.MatMult):
            return self.computed("matmul", node, (left, right))
        kind = "tensor" if tensor else "other" if left.kind == right.kind == "other" else "unknown"
        dtype = (
            "float"
            if "float" in (left.dtype, right.dtype)
            else "int"
            if left.dtype == right.dtype == "int" and not isinstance(node.op, ast.Div)
            else None
        )
        if isinstance(node.op, ast.Div) and tensor and dtype is None:
            dtype = "float" if "int" not in (left.dtype, right.dtype) else None
        result = self.fresh_tensor(derived(left, right, kind=kind, dtype=dtype))
        powers = isinstance(node.op, ast.Pow) and of_grad(left)
        quotient = isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)) and of_grad(right)
        product = isinstance(node.op, ast.Mult) and of_grad(left) and of_grad(right)
        return self.bend(result, node) if powers or quotient or product else result

    def of_unaryop(self: Interpreter, node: ast.UnaryOp) -> Value:  # type: ignore[misc]
        value = self.value(node.operand)
        self.touch(value, "operand", node)
        if isinstance(node.op, ast.Not):
            self.emit(Test, node.operand, value=value, none=False)
            return OTHER
        return self.fresh_tensor(derived(value, kind=value.kind, dtype=value.dtype))

    def of_compare(self: Interpreter, node: ast.Compare) -> Value:  # type: ignore[misc]
        values = [self.value(n) for n in (node.left, *node.comparators)]
        if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            if any(v.is_none for v in values):
                self.emit(Test, node, value=values[0], none=True)
            return OTHER
        for value, part in zip(values, (node.left, *node.comparators), strict=True):
            self.touch(value, "operand", part)
        if any(v.is_tensor for v in values) and not any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            result = self.fresh_tensor(derived(*values, kind="tensor", dtype="int"))
            return self.bend(result, node) if any(of_grad(v) for v in values) and not _asks_for_nan(node) else result
        return OTHER

    def of_boolop(self: Interpreter, node: ast.BoolOp) -> Value:  # type: ignore[misc]
        result: Value | None = None
        height = len(self.guards)
        for operand in node.values:
            value = self.value(operand)
            self.emit(Test, operand, value=value, none=False)
            result = value if result is None else join(result, value)
            self.guards.append(Guard(operand, isinstance(node.op, ast.And)))
        del self.guards[height:]
        return result or OTHER

    def of_ifexp(self: Interpreter, node: ast.IfExp) -> Value:  # type: ignore[misc]
        guard = self.guard(node.test)
        self.guards.append(guard)
        body = self.value(node.body)
        self.guards[-1] = replace(guard, positive=not guard.positive)
        other = self.value(node.orelse)
        self.guards.pop()
        return join(body, other)

    def _elements(self: Interpreter, node: ast.Tuple | ast.List) -> Value:  # type: ignore[misc]
        items: list[Value] | None = []
        refs: frozenset[Ref] = frozenset()
        for element in node.elts:
            value = self.value(element.value if isinstance(element, ast.Starred) else element)
            refs |= value.all_refs()
            if not isinstance(element, ast.Starred):
                if items is not None:
                    items.append(value)
            elif value.items is not None and items is not None:
                items.extend(value.items)
            else:
                self.touch(value, "other", element)
                items = None
        container = "tuple" if isinstance(node, ast.Tuple) else "list"
        if items is None:
            return Value(refs, "unknown", container=container)
        return Value(items=tuple(items), container=container, kind="other")

    of_tuple = _elements
    of_list = _elements

    def of_dict(self: Interpreter, node: ast.Dict) -> Value:  # type: ignore[misc]
        values = tuple(self.use(v, "stored") for v in node.values)
        return Value(frozenset(r for v in values for r in v.all_refs()), "other", container="dict", items=None)

    def of_lambda(self: Interpreter, node: ast.Lambda) -> Value:  # type: ignore[misc]
        self._captured(node)
        return Value(closure=Closure(node, self.source, self.scope), kind="other")

    def of_namedexpr(self: Interpreter, node: ast.NamedExpr) -> Value:  # type: ignore[misc]
        value = self.use(node.value, "other")
        self.assign(node.target, value, node)
        return value

    def of_starred(self: Interpreter, node: ast.Starred) -> Value:  # type: ignore[misc]
        return self.use(node.value, "other")

    def of_joinedstr(self: Interpreter, node: ast.JoinedStr) -> Value:  # type: ignore[misc]
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.value(part.value)
        return OTHER

    def guard(self: Interpreter, test: ast.expr) -> Guard:  # type: ignore[misc]
        """Evaluate a condition and return it with the needs_input_grad flags it tests."""
        positive = True
        while (inner := _same_as(test)) is not None:
            test, positive = inner[0], positive == inner[1]
        outer, self.flag_sink = self.flag_sink, []
        value = self.value(test)
        flags = frozenset(self.flag_sink) | {r.key for v in value.flat() for r in v.refs if r.root in ("needs", "requires")}
        self.flag_sink = outer
        self.emit(Test, test, value=value, none=False)
        if isinstance(test, (ast.Name, ast.Attribute, ast.Subscript)):
            self.touch(value, "other", test)
        if isinstance(test, ast.BoolOp) and all(isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not) for v in test.values):
            mode = "any" if isinstance(test.op, ast.And) else "all"
            return Guard(test, not positive, flags, mode if flags else "none")
        return Guard(test, positive, flags, flag_mode(test, flags))

    def context_name(self, node: ast.expr) -> str:
        return dotted(node.func if isinstance(node, ast.Call) else node) or ""


def _same_as(test: ast.expr) -> tuple[ast.expr, bool] | None:
    """Return what a condition is another way to write for, and whether it is that or its opposite: ``not a``, ``a == False``, ``a is True``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand, False
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        said, op = test.comparators[0].value, test.ops[0]
        if isinstance(said, bool) and isinstance(op, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
            return test.left, said == isinstance(op, (ast.Eq, ast.Is))
    return None


def _asks_for_nan(node: ast.Compare) -> bool:
    """Whether a comparison tells NaN from numbers, ``g != g``: it changes nothing about what is linear in numbers."""
    return len(node.comparators) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and ast.dump(node.left) == ast.dump(node.comparators[0])
