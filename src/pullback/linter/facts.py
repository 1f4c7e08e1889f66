"""The facts of one Function class, read once: parameters, returns, what is saved and read, marks, writes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard, TypeVar

from .events import Call, CtxWrite, Event, Mark, Record, Returned, Save, SavedRead, Use, Write
from .evidence import annotation_kind, default_kind, differentiated, used_as_tensors
from .interpret import Interpreter, Memory
from .library import library_ops
from .nodes import walk
from .project import Project, dotted
from .source import Source
from .values import OTHER, Ref, Value, join

E = TypeVar("E", bound=Event)
_SIMPLE = (ast.Assign, ast.Expr, ast.Return, ast.AugAssign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.Pass)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of forward, without ctx."""

    name: str
    index: int
    node: ast.arg
    has_default: bool
    kind: Literal["tensor", "other", "unknown"]


@dataclass(eq=False)
class Method:
    """A method and the record of what happens in it."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    source: Source
    own: bool
    record: Record = field(default_factory=Record)
    ctx: str | None = None

    @functools.cached_property
    def positional(self) -> list[ast.arg]:
        """Positional parameters after ctx (and cls)."""
        arguments = [*self.node.args.posonlyargs, *self.node.args.args]
        if "classmethod" in self.decorators:
            arguments = arguments[1:]
        return arguments[1:] if self.ctx is not None else arguments

    @property
    def required(self) -> int:
        return max(0, len(self.positional) - len(self.node.args.defaults))

    @property
    def vararg(self) -> str | None:
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @functools.cached_property
    def decorators(self) -> list[str]:
        found = (dotted(d.func if isinstance(d, ast.Call) else d) for d in self.node.decorator_list)
        return [d.rsplit(".", 1)[-1] for d in found if d]

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """Its nodes, as `walk` gives them."""
        return walk(self.node)

    @functools.cached_property
    def bound(self) -> frozenset[str]:
        """The names that it binds somewhere."""
        return frozenset(n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))

    def of(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one kind."""
        return iter(self.record.of(kind))


@dataclass(eq=False)
class ClassFacts:
    """What rules look at: one Function class."""

    source: Source
    node: ast.ClassDef
    qualname: str
    project: Project
    enclosing: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...] = ()
    siblings: list[ClassFacts] = field(default_factory=list)
    forward: Method | None = None
    setup: Method | None = None
    backward: Method | None = None
    others: list[Method] = field(default_factory=list)
    inputs: list[Parameter] = field(default_factory=list)
    vararg_index: int | None = None
    memory: Memory = field(default_factory=Memory)
    input_values: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def subject(self) -> str:
        return f"{self.source.module}.{self.qualname}"

    @property
    def whole(self) -> bool:
        """Whether forward and backward both stand in this class, so that rules may compare them."""
        methods = [m for m in (self.forward, self.setup, self.backward) if m]
        return self.forward is not None and self.backward is not None and all(m.own for m in methods)

    @property
    def before(self) -> list[Method]:
        """The methods that run before backward: forward and setup_context."""
        return [m for m in (self.forward, self.setup) if m is not None]

    @property
    def methods(self) -> list[Method]:
        return [m for m in (self.forward, self.setup, self.backward, *self.others) if m is not None]

    @property
    def escapes(self) -> bool:
        """Whether ctx is handed to code that cannot be followed."""
        return any(m.record.ctx_escapes or m.record.exhausted for m in self.methods)

    @functools.cached_property
    def saves(self) -> list[Save]:
        return [e for m in self.before for e in m.of(Save) if not e.forward_mode]

    @functools.cached_property
    def marks(self) -> list[Mark]:
        return [e for m in self.before for e in m.of(Mark)]

    @functools.cached_property
    def ctx_writes(self) -> list[CtxWrite]:
        return [e for m in self.before for e in m.of(CtxWrite)]

    @functools.cached_property
    def reads_of_saved(self) -> list[SavedRead]:
        return [e for m in self.methods for e in m.of(SavedRead)]

    @property
    def materializes(self) -> bool:
        """Whether undefined gradients arrive as zeros."""
        return not any(m.name == "set_materialize_grads" for m in self.marks) and not self.escapes

    @functools.cached_property
    def outputs(self) -> list[Returned]:
        """The forms of forward's return, without bare ones."""
        return [] if self.forward is None else list(self.forward.of(Returned))

    @functools.cached_property
    def output_counts(self) -> set[int] | None:
        """Numbers of outputs over all paths, None where one is not known."""
        if not self.outputs or any(r.items is None for r in self.outputs):
            return None
        return {len(r.items) for r in self.outputs if r.items is not None}

    def output(self, index: int) -> Value | None:
        """Return what output `index` may be, None where it is not known on some path."""
        values = [r.items[index] if r.items is not None and index < len(r.items) else None for r in self.outputs]
        if not values or any(v is None for v in values):
            return None
        return functools.reduce(join, values)  # type: ignore[arg-type]

    @functools.cached_property
    def gradients(self) -> list[Returned]:
        """The forms of backward's return; empty for a backward that returns nothing (an export stub)."""
        if self.backward is None:
            return []
        forms = list(self.backward.of(Returned))
        return [] if all(f.bare or (f.value.is_none and f.value.items is None) for f in forms) else forms

    def gradient(self, index: int) -> list[Value]:
        """Return the known values of the gradient of input `index`, one for each return form that has it."""
        return [f.items[index] for f in self.gradients if f.items is not None and index < len(f.items)]

    def gets_gradient(self, index: int) -> bool:
        """Whether some path returns something else than None for an input."""
        if len(self.inputs) == 1 and self.vararg_index is None and any(f.items is None and not f.bare for f in self.gradients):
            return True
        return any(not v.is_none for v in self.gradient(index))

    @property
    def gradient_names(self) -> list[str]:
        return [] if self.backward is None else [a.arg for a in self.backward.positional]

    def grad_uses(self, index: int) -> list[Use]:
        """Return the uses of the gradient of output `index` in backward, shapes and dtypes left out."""
        if self.backward is None:
            return []
        return [
            e
            for e in self.backward.of(Use)
            if e.how not in ("meta", "passed") and any(r.root == "grad" and r.key in (index, "*") for r in e.value.refs)
        ]

    def own(self, *methods: Method | None) -> list[Method]:
        """Return those methods that stand in this class itself: what a finding may point at."""
        return [m for m in methods if m is not None and m.own]

    def returned_outputs(self) -> list[Value]:
        return [v for form in self.outputs for v in (form.items or (form.value,))]

    def input_name(self, key: int | str) -> str:
        """Return the name of an input by index."""
        return self.inputs[key].name if isinstance(key, int) and key < len(self.inputs) else f"input {key}"

    @functools.cached_property
    def once_differentiable(self) -> bool:
        return self.backward is not None and "once_differentiable" in self.backward.decorators

    @functools.cached_property
    def writes(self) -> list[tuple[Method, Write]]:
        return [(m, e) for m in self.methods for e in m.of(Write)]

    def calls(self, method: Method | None) -> Iterator[Call]:
        return method.of(Call) if method else iter(())

    def text(self, node: ast.AST) -> str:
        """Return a node's source on one line, cut short."""
        text = " ".join(self.source.text(node).split())
        return text if len(text) <= 70 else text[:67] + "…"

    @functools.cached_property
    def declared(self) -> set[str]:
        """Keys that `__pullback__` or a `.declare(...)` in the same file set for this class."""
        found: set[str] = set()
        for statement in self.node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if any(isinstance(t, ast.Name) and t.id == "__pullback__" for t in targets) and isinstance(statement.value, ast.Dict):  # type: ignore[union-attr]
                found |= {k.value for k in statement.value.keys if isinstance(k, ast.Constant)}  # type: ignore[union-attr]
        if b".declare(" in self.source.data:
            for node in walk(self.source.tree):
                if _is_declaration(node) and any(isinstance(n, ast.Name) and n.id == self.name for n in walk(node.func)):
                    found |= {k.arg for k in node.keywords if k.arg}
        return found


def _is_declaration(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "declare"


def classes(source: Source, project: Project) -> list[ClassFacts]:
    """Return the facts of every Function class in a file, in order; then those of ops of torch.library."""
    found = [
        ClassFacts(source, node, qualname, project, enclosing)
        for node, qualname, enclosing in _class_definitions(source, source.tree.body, "", ())
        if project.is_function(source, node)
    ]
    if b"register_autograd" in source.data:
        found += [ClassFacts(source, node, node.name, project) for node in library_ops(source)]
    for facts in found:
        facts.siblings = found
        _fill(facts)
    return found


def _class_definitions(source: Source, body: list[ast.stmt], prefix: str, enclosing: tuple) -> Iterator[tuple[ast.ClassDef, str, tuple]]:
    for node in body:
        if isinstance(node, _SIMPLE) or (not isinstance(node, ast.ClassDef) and not source.mentions(node, b"class ")):
            continue
        if isinstance(node, ast.ClassDef):
            yield node, prefix + node.name, enclosing
            yield from _class_definitions(source, node.body, f"{prefix}{node.name}.", enclosing)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _class_definitions(source, node.body, f"{prefix}{node.name}.", (*enclosing, node))
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _class_definitions(source, getattr(node, name, None) or [], prefix, enclosing)
            for handler in getattr(node, "handlers", ()):
                yield from _class_definitions(source, handler.body, prefix, enclosing)


def _fill(facts: ClassFacts) -> None:
    facts.setup = _method(facts, "setup_context", ctx=True)
    facts.forward = _method(facts, "forward", ctx=facts.setup is None)
    facts.backward = _method(facts, "backward", ctx=True) or _method(facts, "vjp", ctx=True)
    facts.others = [m for name in ("jvp", "vmap") if (m := _method(facts, name, ctx=name == "jvp"))]
    if facts.forward is None:
        return
    _inputs(facts, facts.forward)
    _run_forward(facts, facts.forward)
    saved = [s.values for s in facts.saves]
    if saved and all(v is not None and len(v) == len(saved[0] or ()) for v in saved):
        facts.memory.saved = tuple(functools.reduce(join, column) for column in zip(*saved, strict=True))  # type: ignore[arg-type]
    for method in (facts.backward, *facts.others):
        if method is not None:
            _run_later(facts, method)


def _method(facts: ClassFacts, name: str, *, ctx: bool) -> Method | None:
    found = facts.project.lookup(facts.source, facts.node, name)
    if found is None:
        return None
    owner, definition = found
    method = Method(name, definition.node, definition.source, owner.node is facts.node)  # type: ignore[arg-type]
    first = [*definition.node.args.posonlyargs, *definition.node.args.args]  # type: ignore[union-attr]
    first = first[1:] if "classmethod" in method.decorators else first
    method.ctx = first[0].arg if ctx and first else None
    return method


def _inputs(facts: ClassFacts, forward: Method) -> None:
    tensors = used_as_tensors(forward.nodes, facts.setup.nodes if facts.setup else ())
    trained = differentiated(facts.backward.nodes if facts.backward else (), len(forward.positional) if forward.vararg is None else 0)
    first_default = forward.required
    defaults = forward.node.args.defaults
    for index, argument in enumerate(forward.positional):
        default = defaults[index - first_default] if index >= first_default and defaults else None
        known = annotation_kind(argument.annotation) or ("tensor" if argument.arg in tensors else None) or default_kind(default)
        kind = known or ("tensor" if index in trained else "unknown")
        facts.inputs.append(Parameter(argument.arg, index, argument, default is not None, kind))
    if forward.vararg is not None:
        facts.vararg_index = len(facts.inputs)
    facts.input_values = tuple(
        Value(frozenset({Ref("input", p.index)}), p.kind, "float" if p.kind == "tensor" and p.index in trained else None) for p in facts.inputs
    )
    facts.memory.inputs = facts.input_values


def _run_forward(facts: ClassFacts, forward: Method) -> None:
    scope = {p.name: v for p, v in zip(facts.inputs, facts.input_values, strict=True)}
    if forward.ctx is not None:
        scope[forward.ctx] = Value(kind="ctx")
    _extra_parameters(forward, scope, "input", len(facts.inputs))
    interpreter = Interpreter(facts.project, forward.source, facts.node, facts.memory, forward.record)
    interpreter.owner_source = facts.source
    interpreter.run(forward.node, scope)
    if facts.setup is not None:
        _run_setup(facts, facts.setup, interpreter.fresh)


def _run_setup(facts: ClassFacts, setup: Method, fresh: int) -> None:
    counts = facts.output_counts
    if counts and len(counts) == 1 and counts != {1}:
        output = Value(items=tuple(facts.output(i) or OTHER for i in range(counts.pop())), container="tuple", kind="other")
    elif counts == {1}:
        output = facts.output(0) or Value(kind="tensor")
    else:
        output = Value()
    inputs = (
        Value(sequence=("input", 0), kind="other")
        if facts.vararg_index is not None
        else Value(items=facts.input_values, container="tuple", kind="other")
    )
    scope: dict[str, Value] = {setup.ctx: Value(kind="ctx")} if setup.ctx else {}
    arguments = [*setup.positional, *setup.node.args.kwonlyargs]
    for argument, value in zip(arguments, (inputs, output), strict=False):
        scope[argument.arg] = value
    interpreter = Interpreter(facts.project, setup.source, facts.node, facts.memory, setup.record)
    interpreter.fresh = fresh
    interpreter.owner_source = facts.source
    interpreter.run(setup.node, scope)


def _run_later(facts: ClassFacts, method: Method) -> None:
    scope: dict[str, Value] = {method.ctx: Value(kind="ctx")} if method.ctx else {}
    for index, argument in enumerate(method.positional):
        scope[argument.arg] = Value(frozenset({Ref("grad", index)}), "tensor") if method is facts.backward else Value()
    _extra_parameters(method, scope, "grad", len(method.positional))
    interpreter = Interpreter(facts.project, method.source, facts.node, facts.memory, method.record)
    interpreter.fresh = 100_000
    interpreter.owner_source = facts.source
    interpreter.run(method.node, scope)


def _extra_parameters(method: Method, scope: dict[str, Value], root: Any, offset: int) -> None:
    if method.vararg is not None:
        scope[method.vararg] = Value(sequence=(root, offset), kind="other")
    if "classmethod" in method.decorators:
        scope[[*method.node.args.posonlyargs, *method.node.args.args][0].arg] = Value(kind="class")
    for argument in method.node.args.kwonlyargs:
        scope[argument.arg] = Value()
    if method.node.args.kwarg is not None:
        scope[method.node.args.kwarg.arg] = Value(container="dict")
