"""The linter's abstract values: what a name may be, and with whom it may share memory."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Root = Literal["input", "grad", "saved", "ctx", "needs", "requires", "local", "global", "class", "nonlinear", "cloned"]
How = Literal["is", "view", "maybe", "from"]
Kind = Literal["tensor", "other", "none", "unknown", "ctx", "class"]

Dtype = Literal["int", "float"] | None

_STRENGTH = {"is": 0, "view": 1, "maybe": 2, "from": 3}


@dataclass(frozen=True, slots=True)
class Ref:
    """A tie between a value and where it comes from.

    Args:
        root: The kind of origin; ``local`` is a tensor made here, ``nonlinear`` a mark left by an operation that is not linear.
        key: Index or name within the root; ``"*"`` where it is not known.
        how: ``is`` the same object, ``view`` shares its memory, ``maybe`` shares it unless a copy was needed, ``from`` computed from it.
    """

    root: Root
    key: int | str
    how: How = "is"

    def through(self, how: How) -> Ref:
        return self if _STRENGTH[self.how] >= _STRENGTH[how] else Ref(self.root, self.key, how)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which a statement runs.

    Args:
        test: The expression tested.
        positive: Whether the statement runs when it holds.
        flags: Indices of the inputs whose need of a gradient it tests.
        mode: How the flags are combined: ``one``, ``any``, ``all``; ``none`` where there are no flags.
        enforced: Whether the code raises where it does not hold, rather than going another way.
    """

    test: ast.expr
    positive: bool
    flags: frozenset[int | str] = frozenset()
    mode: Literal["none", "one", "any", "all"] = "none"
    enforced: bool = False

    def same_test(self, other: Guard) -> bool:
        return self.test is other.test or ast.dump(self.test) == ast.dump(other.test)


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that can be followed: its definition, the source it stands in, and the names around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    source: Any
    scope: dict[str, Value] = field(default_factory=dict, hash=False, compare=False)
    owner: Any = None


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about the result of an expression."""

    refs: frozenset[Ref] = frozenset()
    kind: Kind = "unknown"
    dtype: Dtype = None
    items: tuple[Value, ...] | None = None
    container: Literal["tuple", "list", "dict"] | None = None
    sequence: tuple[Root, int] | None = None
    closure: Closure | None = None
    unbound: Guard | None = None
    named: str = ""

    def through(self, how: How) -> Value:
        """Return the value of a view, possible copy or result of this one."""
        return Value(frozenset(r.through(how) for r in self.refs), "tensor" if self.kind != "other" else "other", self.dtype)

    def tied(self, ref: Ref) -> Value:
        """Return the value with one tie more."""
        # dataclasses.replace is four times slower, and nothing is done more often
        return Value(self.refs | {ref}, self.kind, self.dtype, self.items, self.container, self.sequence, self.closure, self.unbound, self.named)

    def shares(self, root: Root, *hows: How) -> list[int | str]:
        """Return the keys of the origins of one root with which the value shares memory (or as given in `hows`)."""
        wanted = hows or ("is", "view", "maybe")
        return sorted({r.key for r in self.refs if r.root == root and r.how in wanted}, key=str)

    def has(self, root: Root, *hows: How) -> bool:
        wanted = hows or ("is", "view", "maybe", "from")
        return any(r.root == root and r.how in wanted for r in self.refs)

    @property
    def is_tensor(self) -> bool:
        return self.kind == "tensor"

    @property
    def is_none(self) -> bool:
        return self.kind == "none"

    def flat(self) -> Iterable[Value]:
        """Yield the value itself and everything known to be inside it."""
        yield self
        for item in self.items or ():
            yield from item.flat()

    def all_refs(self) -> frozenset[Ref]:
        if not self.items:
            return self.refs
        return frozenset(r for v in self.flat() for r in v.refs)


UNKNOWN = Value()
OTHER = Value(kind="other")
NONE = Value(kind="none")


def join(a: Value, b: Value) -> Value:
    """Return what is known of a name that is `a` on one path and `b` on another."""
    if a is b or a == b:
        return a
    if a.is_none or b.is_none:
        kept = b if a.is_none else a
        return replace(kept, unbound=a.unbound or b.unbound)
    items = tuple(map(join, a.items, b.items)) if a.items and b.items and len(a.items) == len(b.items) else None
    return Value(
        refs=a.refs | b.refs,
        kind=a.kind if a.kind == b.kind else "unknown",
        dtype=a.dtype if a.dtype == b.dtype else None,
        items=items,
        container=a.container if a.container == b.container else None,
        sequence=a.sequence if a.sequence == b.sequence else None,
        closure=a.closure if a.closure == b.closure else None,
        unbound=a.unbound or b.unbound,
        named=a.named if a.named == b.named else "",
    )


def derived(*values: Value, kind: Kind = "unknown", dtype: Dtype = None) -> Value:
    """Return a value computed from others: it shares no memory with them."""
    return Value(frozenset(r.through("from") for v in values for r in v.all_refs() if r.root not in ("local", "cloned")), kind, dtype)
