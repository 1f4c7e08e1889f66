"""The facts of a class as a table: what a reviewer wants to see before reading the code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .events import CtxRead, CtxWrite, Mark, Save, SavedRead, Write
from .facts import ClassFacts, Method
from .values import Value


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: the line, the method, what kind of fact, and its text."""

    line: int
    method: str
    what: str
    text: str


def rows(facts: ClassFacts) -> list[Row]:
    """Return the facts of one class in the order of the source."""
    found = [row for method in facts.methods if method.own for row in _of_method(facts, method)]
    return sorted(dict.fromkeys(found), key=lambda r: r.line)


def render(classes: list[ClassFacts]) -> str:
    """Return the tables of several classes as text."""
    blocks = []
    for facts in classes:
        table = rows(facts)
        head = f"{facts.qualname}   {facts.source.path}:{facts.node.lineno}"
        cells = [(str(r.line), r.method, r.what, r.text) for r in table]
        widths = [max((len(c[i]) for c in cells), default=0) for i in range(3)]
        lines = [f"  {c[0]:>{widths[0]}}  {c[1]:<{widths[1]}}  {c[2]:<{widths[2]}}  {c[3]}" for c in cells]
        blocks.append("\n".join([head, *lines]))
    return "\n\n".join(blocks)


def _of_method(facts: ClassFacts, method: Method) -> Iterator[Row]:
    name = method.name
    yield Row(method.node.lineno, name, "takes", _parameters(facts, method))
    for event in method.record.events:
        line = getattr(event.site, "lineno", method.node.lineno)
        via = f" (in {event.via[-1]})" if event.via else ""
        if isinstance(event, Save):
            yield Row(
                line,
                name,
                "saves",
                (", ".join(facts.text(a) for a in getattr(event.node, "args", [])) if not event.via else _origins(facts, event.values)) + via,
            )
        elif isinstance(event, SavedRead):
            used = _used(facts, method)
            yield Row(line, name, "unpacks", f"{method.ctx}.{event.spelling}: {used}{via}")
        elif isinstance(event, CtxWrite):
            yield Row(line, name, "sets", f"{method.ctx}.{event.attribute}{_kind(event.value)}{via}")
        elif isinstance(event, CtxRead):
            yield Row(line, name, "reads", f"{method.ctx}.{event.attribute}{via}")
        elif isinstance(event, Mark):
            yield Row(line, name, "marks", f"{facts.text(event.node) if not event.via else event.name}{via}")
        elif isinstance(event, Write):
            target = _origins(facts, (event.target,))
            yield Row(line, name, "writes", f"{event.by} into {target}{via}")
    if method in (facts.forward, facts.backward):
        for form in facts.outputs if method is facts.forward else facts.gradients:
            yield Row(getattr(form.site, "lineno", 0), name, "returns", _returned(facts, form.items, method is facts.backward))


def _parameters(facts: ClassFacts, method: Method) -> str:
    if method is facts.forward:
        parts = [f"{p.name}{' (tensor)' if p.kind == 'tensor' else ''}{' = default' if p.has_default else ''}" for p in facts.inputs]
    else:
        parts = [a.arg for a in method.positional]
    decorators = [d for d in method.decorators if d != "staticmethod"]
    return ", ".join([*parts, *([f"*{method.vararg}"] if method.vararg else [])]) + (f"   [{', '.join(decorators)}]" if decorators else "")


def _returned(facts: ClassFacts, items: tuple[Value, ...] | None, gradients: bool) -> str:
    if items is None:
        return "a number of values that is not known"
    described = []
    for index, value in enumerate(items):
        what = "None" if value.is_none else _origins(facts, (value,)) or "a value"
        described.append(f"{facts.input_name(index)}: {what}" if gradients else what)
    return f"{len(items)}: " + ", ".join(described)


def _origins(facts: ClassFacts, values: tuple[Value, ...] | None) -> str:
    if values is None:
        return "an unknown number of tensors"
    return ", ".join(_origin(facts, v) for v in values)


def _origin(facts: ClassFacts, value: Value) -> str:
    for how, phrase in (("is", "{}"), ("view", "a view of {}"), ("maybe", "perhaps {}")):
        names = [_name(facts, r.root, r.key) for r in sorted(value.refs, key=str) if r.how == how and r.root in ("input", "grad", "saved", "ctx")]
        if names:
            return phrase.format(" or ".join(dict.fromkeys(names)))
    roots = ("input", "grad") if value.has("input") else ("grad", "saved")
    origins = [_name(facts, r.root, r.key) for r in sorted(value.refs, key=str) if r.root in roots]
    return f"computed from {', '.join(dict.fromkeys(origins))}" if origins else "a new tensor" if value.is_tensor else "a value"


def _name(facts: ClassFacts, root: str, key: int | str) -> str:
    if root == "input":
        return facts.input_name(key)
    if root == "grad":
        names = facts.gradient_names
        return names[key] if isinstance(key, int) and key < len(names) else "the gradients"
    return f"saved {key}" if root == "saved" else f"ctx.{key}"


def _kind(value: Value) -> str:
    return " (tensor)" if value.is_tensor else " (None)" if value.is_none else ""


def _used(facts: ClassFacts, method: Method) -> str:
    saved = facts.memory.saved
    if saved is None:
        return "tensors"
    return f"{len(saved)} tensor{'' if len(saved) == 1 else 's'}"
