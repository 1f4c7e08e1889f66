"""Reading a method once, statement by statement, into a `Record` of events.

Branches are followed with their conditions, loops once, and calls of functions of the same project are entered with the values they get.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .bindings import Bindings
from .events import Event, Record, Returned, Save, SavedRead, Use, Write
from .flow import Scope, merge, told_by, union
from .nodes import walk
from .project import Project
from .source import Source
from .values import NONE, OTHER, UNKNOWN, Closure, Guard, Ref, Value


@dataclass(slots=True)
class Memory:
    """What backward knows from forward: ctx attributes, saved tensors, facts about inputs."""

    attributes: dict[str, Value] = field(default_factory=dict)
    saved: tuple[Value, ...] | None = None
    inputs: tuple[Value, ...] = ()


@functools.cache
def _handler(kind: type[ast.stmt]) -> str:
    return f"do_{kind.__name__.lower()}"


class Interpreter(Bindings):
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
        self.named_tests: dict[str, ast.expr] = {}
        self.settled: dict[str, bool] = {}

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
        name, kind, sure = self._told(guard)
        value = self.scope.get(name)
        if value is None or not (guard.positive or sure) or kind is None:
            return
        if kind == "none":
            if guard.positive:
                self.scope[name] = NONE
        else:
            self.scope[name] = replace(value, kind=kind if guard.positive else "other" if kind == "tensor" else value.kind)

    def _told(self, guard: Guard) -> tuple[str, Literal["tensor", "other", "none"] | None, bool]:
        test = guard.test
        return told_by(self.named_tests.get(test.id, test) if isinstance(test, ast.Name) else test)

    def do_if(self, node: ast.If) -> bool | None:
        known = self.settled.get(node.test.id) if isinstance(node.test, ast.Name) else None
        if known is not None:
            return None if self.block(node.body if known else node.orelse) else False
        guard = self.guard(node.test)
        other = replace(guard, positive=not guard.positive)
        before = self.scope
        scope, alive, saves, reads = self._branch(guard, node.body, before)
        else_scope, else_alive, else_saves, else_reads = self._branch(other, node.orelse, before)
        if alive and else_alive:
            self.scope = merge(scope, else_scope, guard, other)
            name, kind, _ = self._told(guard)
            if kind and name in before and scope.get(name, NONE).refs <= before[name].refs and else_scope.get(name, NONE).refs <= before[name].refs:
                self.scope[name] = before[name]
            self.saves, self.saved_reads = union(saves, else_saves), union(reads, else_reads)
        elif alive:
            self.scope, self.saves, self.saved_reads = scope, saves, reads
            self.guards.append(replace(guard, enforced=_raises(node.orelse)))
        elif else_alive:
            self.scope, self.saves, self.saved_reads = else_scope, else_saves, else_reads
            self.guards.append(replace(other, enforced=_raises(node.body)))
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
        self.guards.append(replace(self.guard(node.test), enforced=True))

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


def _raises(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Raise)
