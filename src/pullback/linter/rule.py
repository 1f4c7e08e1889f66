"""What a rule is: one class, one file, with its documentation, its test data and its search."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from ..report.finding import Edit, Severity
from .facts import ClassFacts, Method

PREAMBLE = "import torch\nimport torch.distributed as dist\nimport torch.nn.functional as F\n\n\n"


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule applies."""

    node: ast.AST
    message: str
    fix: str | None = None
    edits: tuple[Edit, ...] = ()
    cause: str | None = None
    seen: tuple[str, ...] = field(default_factory=tuple)


class Rule:
    """Base of all rules.

    Attributes:
        code, name, severity: Its entry in the registry of codes.
        default: Whether it runs without being selected.
        bad, good, fixed: Code in which it finds something, code in which it does not, and `bad` after the fix (``""`` where there is none).
        safe: Whether the fix keeps the program's meaning.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    default: ClassVar[bool] = True
    bad: ClassVar[str]
    good: ClassVar[str]
    fixed: ClassVar[str] = ""
    safe: ClassVar[bool] = True

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        """Yield the places in one class."""
        raise NotImplementedError


def edit(facts: ClassFacts, start: int, end: int, text: str, *, safe: bool = True) -> tuple[Edit, ...]:
    """Return one edit of the class's file, or none where byte offsets do not hold."""
    return (Edit(str(facts.source.path), start, end, text, safe),) if facts.source.utf8 else ()


def replace_node(facts: ClassFacts, node: ast.AST, text: str, *, safe: bool = True) -> tuple[Edit, ...]:
    return edit(facts, *facts.source.span(node), text, safe=safe)


def insert_after(facts: ClassFacts, node: ast.AST, text: str, *, safe: bool = True) -> tuple[Edit, ...]:
    end = facts.source.span(node)[1]
    return edit(facts, end, end, text, safe=safe)


def insert_first(facts: ClassFacts, method: Method, text: str, *, safe: bool = True) -> tuple[Edit, ...]:
    """Return the edit that makes `text` the first statement of a method, after its docstring."""
    body = method.node.body
    first = body[1] if len(body) > 1 and ast.get_docstring(method.node) is not None else body[0]
    if first.lineno == method.node.lineno:
        return ()
    first_line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
    start = facts.source.offset(first_line, 0)
    newline = "\r\n" if facts.source.lines[first_line - 1].endswith(b"\r\n") else "\n"
    indent = facts.source.lines[first_line - 1][: first.col_offset].decode("utf-8", "replace")
    return edit(facts, start, start, f"{indent}{text}{newline}", safe=safe)


def through(event_via: tuple[str, ...]) -> str:
    """Return `` (in helper `f`)`` for an event inside a helper."""
    return f" (in `{event_via[-1]}`)" if event_via else ""


def once_a_site(hits: Iterator[Hit]) -> Iterator[Hit]:
    """Drop hits at a place where there was one already."""
    seen: set[tuple[int, int]] = set()
    for hit in hits:
        key = (hit.node.lineno, hit.node.col_offset)  # type: ignore[attr-defined]
        if key not in seen:
            seen.add(key)
            yield hit


def named(names: list[str]) -> str:
    """Return ``a, b and c`` in code quotes."""
    quoted = [f"`{n}`" for n in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
