"""What names, attributes and items hold: assignments, and taking values apart."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .calls import Calls
from .events import AttributeWrite, Bind, CtxDelete, CtxWrite, StateWrite, UnboundRead
from .flow import implies, pair, symbol, with_item
from .values import UNKNOWN, Ref, Root, Value, derived, join

if TYPE_CHECKING:
    from .interpret import Interpreter


class Bindings(Calls):
    """The part of the interpreter that assigns."""

    def do_assign(self: Interpreter, node: ast.Assign) -> None:  # type: ignore[misc]
        value = self.assigned(node.value)
        for target in node.targets:
            self.assign(target, value, node)
            if isinstance(target, ast.Name):
                self.named_tests[target.id] = node.value

    def do_annassign(self: Interpreter, node: ast.AnnAssign) -> None:  # type: ignore[misc]
        if node.value is not None:
            value = self.assigned(node.value)
            self.assign(node.target, value, node)

    def assigned(self: Interpreter, node: ast.expr) -> Value:  # type: ignore[misc]
        """Evaluate the right side of an assignment; a mere alias is not a use."""
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self.value(node)
        if isinstance(node, (ast.Tuple, ast.List)):
            return (
                Value(
                    items=tuple(self.assigned(e) for e in node.elts if not isinstance(e, ast.Starred)),
                    container="tuple" if isinstance(node, ast.Tuple) else "list",
                    kind="other",
                )
                if not any(isinstance(e, ast.Starred) for e in node.elts)
                else self.use(node, "other")
            )
        return self.use(node, "other")

    def do_augassign(self: Interpreter, node: ast.AugAssign) -> None:  # type: ignore[misc]
        right = self.use(node.value, "operand")
        if isinstance(node.target, ast.Name):
            self._augment_name(node, node.target, right)
        elif isinstance(node.target, ast.Subscript):
            base = self.value(node.target.value)
            index = self.use(node.target.slice, "operand")
            self.touch(base, "operand", node)
            self.write(base, node, "[…] " + symbol(node.op), "index", node.target.value)
            self._taint(node.target.value, right, index)
        elif isinstance(node.target, ast.Attribute):
            base = self.value(node.target.value)
            current = self.value(node.target)
            if base.kind == "ctx":
                self.touch(current, "operand", node)
                self.emit(CtxWrite, node, attribute=node.target.attr, value=derived(current, right, kind=current.kind))
                return
            self.emit(AttributeWrite, node, value=base, attribute=node.target.attr, assigned=right)
            if node.target.attr == "data":
                self.write(base, node, symbol(node.op), "augmented", node.target.value)

    def _augment_name(self: Interpreter, node: ast.AugAssign, target: ast.Name, right: Value) -> None:  # type: ignore[misc]
        current = self.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        if current.is_tensor:
            self.touch(current, "operand", node)
            self.write(current, node, symbol(node.op), "augmented", target)
            self.scope[target.id] = replace(current, refs=current.refs | derived(right).refs)
        elif current.items is not None and right.items is not None and isinstance(node.op, ast.Add):
            self.scope[target.id] = replace(current, items=current.items + right.items)
        else:
            kind = "tensor" if right.is_tensor else "other" if current.kind == right.kind == "other" else "unknown"
            self.scope[target.id] = derived(current, right, kind=kind)

    def do_delete(self: Interpreter, node: ast.Delete) -> None:  # type: ignore[misc]
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scope.pop(target.id, None)
            elif isinstance(target, ast.Attribute) and self.value(target.value).kind == "ctx":
                self.emit(CtxDelete, node, attribute=target.attr)

    def assign(self: Interpreter, target: ast.expr, value: Value, node: ast.AST) -> None:  # type: ignore[misc]
        """Bind a target to a value."""
        if isinstance(target, ast.Name):
            if target.id in self.globals:
                self.emit(StateWrite, node, owner="global", name=target.id, value=value)
            self.scope[target.id] = replace(value, unbound=None) if value.unbound else value
            if not self.via and self.guards:
                self.emit(Bind, node, name=target.id, value=value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, node)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value, node)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, value, node)

    def _assign_attribute(self: Interpreter, target: ast.Attribute, value: Value, node: ast.AST) -> None:  # type: ignore[misc]
        base = self.value(target.value)
        self.touch(value, "stored", node)
        if value.kind == "ctx":
            self.record.ctx_escapes = True
        if base.kind == "ctx":
            self.emit(CtxWrite, node, attribute=target.attr, value=value)
            self.remember(target.attr, value)
        elif base.kind == "class":
            self.emit(StateWrite, node, owner="class", name=target.attr, value=value)
        else:
            self.emit(AttributeWrite, node, value=base, attribute=target.attr, assigned=value)

    def remember(self: Interpreter, attribute: str, value: Value) -> None:  # type: ignore[misc]
        known = self.memory.attributes.get(attribute)
        self.memory.attributes[attribute] = value if known is None else join(known, value)

    def _assign_item(self: Interpreter, target: ast.Subscript, value: Value, node: ast.AST) -> None:  # type: ignore[misc]
        base = self.value(target.value)
        index = self.use(target.slice, "operand")
        self.touch(value, "stored", node)
        if value.kind == "ctx":
            self.record.ctx_escapes = True
        if base.container in ("list", "dict", "tuple") or (base.named and not base.refs):
            if isinstance(target.value, ast.Name) and base.items is not None:
                self.scope[target.value.id] = replace(base, items=with_item(base.items, target.slice, value))
            return
        self.write(base, node, "[…] =", "index", target.value)
        self._taint(target.value, value, index)

    def _taint(self: Interpreter, base: ast.expr, *values: Value) -> None:  # type: ignore[misc]
        while isinstance(base, (ast.Subscript, ast.Attribute)):
            base = base.value
        if isinstance(base, ast.Name) and base.id in self.scope:
            current = self.scope[base.id]
            self.scope[base.id] = replace(current, refs=current.refs | derived(*values).refs)

    def _unpack(self: Interpreter, targets: Sequence[ast.expr], value: Value, node: ast.AST) -> None:  # type: ignore[misc]
        star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if value.items is not None and (len(value.items) == len(targets) if star is None else len(value.items) >= len(targets) - 1):
            for target, item in pair(targets, value.items, star):
                self.assign(target, item, node)
            return
        for position, target in enumerate(targets):
            if value.sequence is not None:
                root, offset = value.sequence
                if star is None or position < star:
                    item = self.member(root, offset + position)
                elif position == star:
                    item = Value(sequence=(root, offset + position))
                else:
                    item = Value(frozenset({Ref(root, "*")}), "tensor" if root in ("saved", "grad") else "unknown")
            elif value.container is not None or value.named == "pair":
                item = Value(
                    value.refs, value.kind if value.kind == "tensor" else "unknown", "int" if value.named == "pair" and position else value.dtype
                )
            else:
                item = derived(value)
            self.assign(target, item, node)

    def member(self: Interpreter, root: Root, index: int) -> Value:  # type: ignore[misc]
        """Return element `index` of the inputs, gradients, saved tensors or needs_input_grad."""
        if root == "saved":
            known = self.memory.saved[index] if self.memory.saved is not None and index < len(self.memory.saved) else UNKNOWN
            kept = frozenset(r for r in known.refs if r.root in ("input", "local"))
            return Value(kept | {Ref("saved", index)}, "tensor", known.dtype)
        if root == "grad":
            return Value(frozenset({Ref("grad", index)}), "tensor")
        if root == "needs":
            return Value(frozenset({Ref("needs", index)}), "other")
        if root == "input" and index < len(self.memory.inputs):
            return self.memory.inputs[index]
        return Value(frozenset({Ref(root, index)}))

    def read_name(self: Interpreter, node: ast.Name, value: Value) -> Value:  # type: ignore[misc]
        if value.unbound is not None:
            if value.unbound.flags and not any(implies(g, value.unbound) for g in self.guards):
                self.emit(UnboundRead, node, name=node.id, bound_under=value.unbound)
            value = replace(value, unbound=None)
            self.scope[node.id] = value
        return value
