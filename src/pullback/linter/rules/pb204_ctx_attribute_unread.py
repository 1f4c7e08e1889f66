"""PB204."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import CtxDelete, CtxRead, CtxWrite
from ..facts import ClassFacts
from ..nodes import walk
from ..rule import Hit, Rule
from .pb203_saved_never_read import _mentioned_by_siblings


class CtxAttributeUnread(Rule):
    """An attribute is set on ctx and never read.

    Why it matters:
        A tensor kept this way is memory for nothing; a name that backward spells differently is a fault (PB205).

    How it is measured:
        Attributes written in forward or setup_context that no method of the class reads, directly, by getattr, or in a helper that is given ctx.

    Instead:
        Remove the assignment.
    """

    code = "PB204"
    name = "ctx-attribute-unread"
    severity = "warning"
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        ctx.shape = x.shape
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None
"""
    good = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if not facts.whole or facts.escapes or not facts.gradients or b"grad_fn" in facts.source.data or _mentioned_by_siblings(facts):
            return
        read = {e.attribute for m in facts.methods for e in m.record.events if isinstance(e, (CtxRead, CtxDelete))}
        seen: set[str] = set()
        for method in facts.before:
            for event in method.of(CtxWrite):
                name = event.attribute
                if name in read or name in seen or event.via or name.startswith("__") or _read_in_text(facts, name):
                    continue
                seen.add(name)
                yield Hit(event.site, f"`{method.ctx}.{name}` is set in {facts.name}.{method.name} and never read", fix="remove the assignment")


def _read_in_text(facts: ClassFacts, name: str) -> bool:
    """Whether the class reads such an attribute in a place that was not followed, such as a nested function."""
    names = {"ctx", "self", *(m.ctx for m in facts.methods)}
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load) and isinstance(n.value, ast.Name) and n.value.id in names
        for n in walk(facts.node)
    )
