"""Reading a method once, statement by statement, into a `Record` of events.

Branches are followed with their conditions, loops once, and calls of functions of the same project are entered with the values they get.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .calls import Calls
from .events import AttributeWrite, Bind, CtxDelete, CtxWrite, Event, Record, Returned, Save, SavedRead, StateWrite, UnboundRead, Use, Write
from .flow import Scope, implies, merge, pair, symbol, told_by, union, with_item
from .nodes import walk
from .project import Project
from .source import Source
from .values import NONE, OTHER, UNKNOWN, Closure, Guard, Ref, Root, Value, derived, join


@dataclass(slots=True)
class Memory:
    """What backward knows from forward: ctx attributes, saved tensors, facts about inputs."""

    attributes: dict[str, Value] = field(default_factory=dict)
    saved: tuple[Value, ...] | None = None
    inputs: tuple[Value, ...] = ()


@functools.cache
def _handler(kind: type[ast.stmt]) -> str:
    return f"do_{kind.__name__.lower()}"


class Interpreter(Calls):
    """Walks one method; `record` fills as it goes."""

    def __init__(self, project: Project, source: Source, owner: ast.ClassDef, memory: Memory, record: Record) -> None:
        self.project = project
        self.source = source
        self.owner = owner
        self.owner_source = source
        self.memory = memory
        self.record = record
        self.scope: Scope = {}
        self.outer: Scope = {}
        self.guards: list[Guard] = []
        self.contexts: list[str] = []
        self.site: ast.AST | None = None
        self.via: tuple[str, ...] = ()
        self.returns: list[Value] = []
        self.globals: set[str] = set()
        self.saves: tuple[Save, ...] = ()
        self.saved_reads: tuple[SavedRead, ...] = ()
        self.stack: list[int] = []
        self.budget = 4000
        self.fresh = 0
        self.flag_sink: list[int | str] | None = None

    def run(self, node: ast.FunctionDef | ast.AsyncFunctionDef, arguments: Scope) -> None:
        """Read a method whose parameters have the given values."""
        self.scope = dict(arguments)
        self.stack.append(id(node))
        alive = self.block(node.body)
        if alive:
            self.emit(Returned, node.body[-1], items=None, nodes=None, value=NONE, bare=True)

    def emit(self, event_type: type[Event], node: ast.AST, /, **values: object) -> Event:
        event = event_type(
            node=node,
            site=self.site or node,
            via=self.via,
            guards=tuple(self.guards),
            contexts=tuple(self.contexts),
            **values,  # type: ignore[arg-type]
        )
        self.record.events.append(event)
        return event

    def new_local(self) -> Ref:
        self.fresh += 1
        return Ref("local", self.fresh)

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Run statements; return whether control reaches the end."""
        height = len(self.guards)
        alive = True
        for statement in body:
            self.budget -= 1
            if self.budget < 0:
                self.record.exhausted = True
                break
            method = getattr(self, _handler(type(statement)), None)
            if method is not None and method(statement) is False:
                alive = False
                break
        del self.guards[height:]
        return alive

    def _branch(self, guard: Guard | None, body: Sequence[ast.stmt], scope: Scope) -> tuple[Scope, bool, tuple[Save, ...], tuple[SavedRead, ...]]:
        saves, reads = self.saves, self.saved_reads
        self.scope = dict(scope)
        if guard:
            self.guards.append(guard)
            self._narrow(guard)
        alive = self.block(body)
        if guard:
            self.guards.pop()
        result = self.scope, alive, self.saves, self.saved_reads
        self.saves, self.saved_reads = saves, reads
        return result

    def _narrow(self, guard: Guard) -> None:
        """Use what `isinstance(x, Tensor)`, `x is None` and the like say about a name in their branch."""
        name, kind, sure = told_by(guard.test)
        value = self.scope.get(name)
        if value is None or not (guard.positive or sure) or kind is None:
            return
        if kind == "none":
            if guard.positive:
                self.scope[name] = NONE
        else:
            self.scope[name] = replace(value, kind=kind if guard.positive else "other" if kind == "tensor" else value.kind)

    def do_if(self, node: ast.If) -> bool | None:
        guard = self.guard(node.test)
        other = replace(guard, positive=not guard.positive)
        before = self.scope
        scope, alive, saves, reads = self._branch(guard, node.body, before)
        else_scope, else_alive, else_saves, else_reads = self._branch(other, node.orelse, before)
        if alive and else_alive:
            self.scope = merge(scope, else_scope, guard, other)
            name, kind, _ = told_by(guard.test)
            if kind and name in before and scope.get(name, NONE).refs <= before[name].refs and else_scope.get(name, NONE).refs <= before[name].refs:
                self.scope[name] = before[name]
            self.saves, self.saved_reads = union(saves, else_saves), union(reads, else_reads)
        elif alive:
            self.scope, self.saves, self.saved_reads = scope, saves, reads
            self.guards.append(guard)
        elif else_alive:
            self.scope, self.saves, self.saved_reads = else_scope, else_saves, else_reads
            self.guards.append(other)
        else:
            return False
        return None

    def do_for(self, node: ast.For) -> None:
        element = self.element(node.iter)
        before = self.scope
        self.scope = dict(before)
        self.assign(node.target, element, node)
        alive = self.block(node.body)
        self.scope = merge(before, self.scope) if alive else before
        self.block(node.orelse)

    do_asyncfor = do_for

    def do_while(self, node: ast.While) -> None:
        self.guard(node.test)
        before = self.scope
        self.scope = dict(before)
        alive = self.block(node.body)
        self.scope = merge(before, self.scope) if alive else before
        self.block(node.orelse)

    def do_try(self, node: ast.Try) -> bool | None:
        before = dict(self.scope)
        alive = self.block(node.body) and self.block(node.orelse)
        ends = [self.scope] if alive else []
        for handler in node.handlers:
            self.scope = merge(before, self.scope)
            if handler.name:
                self.scope[handler.name] = OTHER
            if self.block(handler.body):
                ends.append(self.scope)
        scope = ends[0] if ends else dict(before)
        for end in ends[1:]:
            scope = merge(scope, end)
        self.scope = scope
        finished = self.block(node.finalbody)
        return None if ends and finished else False

    do_trystar = do_try

    def do_with(self, node: ast.With) -> bool | None:
        entered = 0
        for item in node.items:
            self.value(item.context_expr)
            self.contexts.append(self.context_name(item.context_expr))
            entered += 1
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN, node)
        alive = self.block(node.body)
        del self.contexts[len(self.contexts) - entered :]
        return None if alive else False

    do_asyncwith = do_with

    def do_match(self, node: ast.Match) -> bool | None:
        self.use(node.subject, "other")
        before = self.scope
        ends: list[Scope] = []
        for case in node.cases:
            scope = dict(before)
            for name in walk(case.pattern):
                bound = getattr(name, "name", None) if isinstance(name, (ast.MatchAs, ast.MatchStar)) else None
                if bound:
                    scope[bound] = UNKNOWN
            end, alive, *_ = self._branch(None, case.body, scope)
            if alive:
                ends.append(end)
        result = before
        for end in ends:
            result = merge(result, end)
        self.scope = result
        return None

    def do_return(self, node: ast.Return) -> bool:
        if node.value is None:
            self.returns.append(NONE)
            if not self.via:
                self.emit(Returned, node, items=None, nodes=None, value=NONE, bare=True)
        else:
            self._return_form(node, node.value)
        return False

    def _return_form(self, node: ast.Return, expression: ast.expr) -> None:
        if isinstance(expression, ast.IfExp):
            guard = self.guard(expression.test)
            for form, side in ((expression.body, guard), (expression.orelse, replace(guard, positive=not guard.positive))):
                self.guards.append(side)
                self._return_form(node, form)
                self.guards.pop()
            return
        value = self.use(expression, "returned")
        self.returns.append(value)
        if self.via:
            return
        nodes = tuple(expression.elts) if isinstance(expression, ast.Tuple) else (expression,)
        if value.container == "tuple" and value.items is not None:
            items: tuple[Value, ...] | None = value.items
            nodes = nodes if len(nodes) == len(value.items) and not any(isinstance(n, ast.Starred) for n in nodes) else None  # type: ignore[assignment]
        elif value.container == "list" or value.is_none or (value.is_tensor and value.container is None):
            items = (value,)
        else:
            items, nodes = None, None  # type: ignore[assignment]
        self.emit(Returned, node, items=items, nodes=nodes, value=value)

    def do_raise(self, node: ast.Raise) -> bool:
        if node.exc is not None:
            self.value(node.exc)
        return False

    def do_continue(self, node: ast.stmt) -> bool:
        return False

    do_break = do_continue

    def do_assert(self, node: ast.Assert) -> None:
        self.guards.append(self.guard(node.test))

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value, discarded=True)
        else:
            self.use(node.value, "other")

    def do_global(self, node: ast.Global) -> None:
        self.globals.update(node.names)

    def do_import(self, node: ast.Import) -> None:
        self.source.add_import(node, self.source.imports)

    def do_importfrom(self, node: ast.ImportFrom) -> None:
        self.source.add_import(node, self.source.imports)

    def do_assign(self, node: ast.Assign) -> None:
        value = self.assigned(node.value)
        for target in node.targets:
            self.assign(target, value, node)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            value = self.assigned(node.value)
            self.assign(node.target, value, node)

    def assigned(self, node: ast.expr) -> Value:
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

    def do_augassign(self, node: ast.AugAssign) -> None:
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

    def _augment_name(self, node: ast.AugAssign, target: ast.Name, right: Value) -> None:
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

    def do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scope.pop(target.id, None)
            elif isinstance(target, ast.Attribute) and self.value(target.value).kind == "ctx":
                self.emit(CtxDelete, node, attribute=target.attr)

    def do_functiondef(self, node: ast.FunctionDef) -> None:
        self._captured(node)
        self.scope[node.name] = Value(closure=Closure(node, self.source, self.scope))

    do_asyncfunctiondef = do_functiondef

    def do_classdef(self, node: ast.ClassDef) -> None:
        self._captured(node)
        self.scope[node.name] = UNKNOWN

    def _captured(self, node: ast.AST) -> None:
        own = {a.arg for n in walk(node) if isinstance(n, ast.arguments) for a in (*n.posonlyargs, *n.args, *n.kwonlyargs)}
        for name in walk(node):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in self.scope and name.id not in own:
                value = self.scope[name.id]
                if value.kind == "ctx":
                    self.record.ctx_escapes = True
                self.touch(value, "other", name)

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
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

    def _assign_attribute(self, target: ast.Attribute, value: Value, node: ast.AST) -> None:
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

    def remember(self, attribute: str, value: Value) -> None:
        known = self.memory.attributes.get(attribute)
        self.memory.attributes[attribute] = value if known is None else join(known, value)

    def _assign_item(self, target: ast.Subscript, value: Value, node: ast.AST) -> None:
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

    def _taint(self, base: ast.expr, *values: Value) -> None:
        while isinstance(base, (ast.Subscript, ast.Attribute)):
            base = base.value
        if isinstance(base, ast.Name) and base.id in self.scope:
            current = self.scope[base.id]
            self.scope[base.id] = replace(current, refs=current.refs | derived(*values).refs)

    def _unpack(self, targets: Sequence[ast.expr], value: Value, node: ast.AST) -> None:
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

    def member(self, root: Root, index: int) -> Value:
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

    def read_name(self, node: ast.Name, value: Value) -> Value:
        if value.unbound is not None:
            if value.unbound.flags and not any(implies(g, value.unbound) for g in self.guards):
                self.emit(UnboundRead, node, name=node.id, bound_under=value.unbound)
            value = replace(value, unbound=None)
            self.scope[node.id] = value
        return value

    def write(self, target: Value, node: ast.AST, by: str, kind: str, receiver: ast.expr) -> None:
        if target.refs and target.kind != "other":
            self.emit(Write, node, target=target, by=by, kind=kind, receiver=receiver)

    def touch(self, value: Value, how: str, node: ast.AST) -> None:
        """Record that a value takes part in a computation."""
        for part in value.flat() if value.items else (value,):
            if part.sequence is not None and part.sequence[0] in ("grad", "saved"):
                self.emit(Use, node, value=Value(frozenset({Ref(part.sequence[0], "*")})), how=how)
                continue
            for ref in part.refs:
                if ref.root in ("grad", "saved") and ref.how != "from":
                    self.emit(Use, node, value=part, how=how)
                    break
