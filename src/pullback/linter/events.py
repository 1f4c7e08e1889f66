"""What happens in a method, in order: the record that rules read."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .values import Guard, Value


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """Common to all events.

    Args:
        node: Where it happens.
        site: The statement or call in the method itself: `node`, or the call of the helper in which it happens.
        via: Names of the helper functions between the two.
        guards: Conditions under which it happens.
        contexts: Names of the context managers around it.
    """

    node: ast.AST
    site: ast.AST
    via: tuple[str, ...]
    guards: tuple[Guard, ...]
    contexts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Write(Event):
    """Memory of `target` is overwritten: by a method ``mul_``, an index assignment, ``out=``, a collective."""

    target: Value
    by: str
    kind: Literal["method", "index", "augmented", "out", "collective", "init"]
    receiver: ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class CtxWrite(Event):
    attribute: str
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class CtxRead(Event):
    attribute: str


@dataclass(frozen=True, slots=True, eq=False)
class CtxDelete(Event):
    attribute: str


@dataclass(frozen=True, slots=True, eq=False)
class Save(Event):
    """A call of save_for_backward; `values` is None where the arguments cannot be told apart."""

    values: tuple[Value, ...] | None
    before: tuple[Save, ...]
    forward_mode: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SavedRead(Event):
    """A read of ctx.saved_tensors; `before` are the reads that came earlier on the same path."""

    before: tuple[SavedRead, ...]
    spelling: str


@dataclass(frozen=True, slots=True, eq=False)
class Mark(Event):
    """mark_dirty, mark_non_differentiable or set_materialize_grads."""

    name: str
    values: tuple[Value, ...]
    exact: bool
    off: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Event):
    """A call of a known name, with what is passed."""

    name: str
    arguments: tuple[Value, ...]
    receiver: Value | None
    discarded: bool
    result: Value
    kernel: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AttributeWrite(Event):
    value: Value
    attribute: str
    assigned: Value


@dataclass(frozen=True, slots=True, eq=False)
class AttributeRead(Event):
    value: Value
    attribute: str


@dataclass(frozen=True, slots=True, eq=False)
class Test(Event):
    """A test of a value: `is None`, `is not None`, or its truth."""

    value: Value
    none: bool


@dataclass(frozen=True, slots=True, eq=False)
class UnboundRead(Event):
    name: str
    bound_under: Guard


@dataclass(frozen=True, slots=True, eq=False)
class FreeRead(Event):
    """A name that is bound neither in the method nor in its parameters."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class StateWrite(Event):
    """An assignment to an attribute of the class itself, or to a global."""

    owner: str
    name: str
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class StateRead(Event):
    owner: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Use(Event):
    """A value with a known origin takes part in a computation (not only its shape)."""

    value: Value
    how: Literal["operand", "argument", "returned", "stored", "other", "meta", "passed"]


@dataclass(frozen=True, slots=True, eq=False)
class Bind(Event):
    """A local name gets a value."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Event):
    """A slice ``x[-n:]`` whose `n` is computed."""

    length: Value
    text_node: ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class Returned(Event):
    """One form that a return statement can take.

    Args:
        items: The returned values, None where their number is not known.
        nodes: Their expressions, where they are written out.
        value: The whole value.
        bare: No expression, or `pass` to the end.
    """

    items: tuple[Value, ...] | None
    nodes: tuple[ast.expr, ...] | None
    value: Value
    bare: bool = False


E = TypeVar("E", bound=Event)


@dataclass(slots=True, eq=False)
class Record:
    """Everything that happened in one method, in order, and what each name's origin was used for."""

    events: list[Event] = field(default_factory=list)
    ctx_escapes: bool = False
    exhausted: bool = False
    optional_reads: set[str] = field(default_factory=set)
    bends: dict[int, ast.AST] = field(default_factory=dict)
    _by_kind: dict[type[Event], list[Any]] = field(default_factory=dict)
    _counted: int = 0

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, in order; every rule asks."""
        if self._counted != len(self.events):
            self._by_kind, self._counted = {}, len(self.events)
            for event in self.events:
                self._by_kind.setdefault(type(event), []).append(event)
        if kind.__subclasses__():
            return [event for event in self.events if isinstance(event, kind)]
        return self._by_kind.get(kind, [])

    def clear(self) -> None:
        """Forget the events."""
        self.events.clear()
        self._by_kind.clear()
