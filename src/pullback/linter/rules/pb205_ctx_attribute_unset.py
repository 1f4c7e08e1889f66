"""PB205."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from .. import torch_names as names
from ..events import CtxRead, CtxWrite
from ..facts import ClassFacts
from ..rule import Hit, Rule

_KNOWN_DECORATORS = frozenset(["staticmethod", "classmethod", "custom_fwd", "custom_bwd", "once_differentiable", "no_grad", "disable"])


class CtxAttributeUnset(Rule):
    """backward reads an attribute of ctx that is never set.

    Why it matters:
        AttributeError in backward, on the path that reads it.

    How it is measured:
        Attributes that backward reads, and that no method sets (also not by setattr); code that hands ctx to
        functions outside the project is left alone.

    Instead:
        Set it in forward, or correct the spelling.
    """

    code = "PB205"
    name = "ctx-attribute-unset"
    severity = "warning"
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.facter, None
"""
    good = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if (
            facts.forward is None
            or facts.escapes
            or b"grad_fn" in facts.source.data
            or any(set(m.decorators) - _KNOWN_DECORATORS for m in facts.methods)
        ):
            return
        written = {e.attribute for m in facts.methods for e in m.of(CtxWrite)}
        optional = set().union(*(m.record.optional_reads for m in facts.methods))
        seen: set[str] = set()
        for method in facts.own(facts.backward):
            for event in method.of(CtxRead):
                name = event.attribute
                if name in written | optional | seen or name in names.CTX_ATTRIBUTES or name.startswith("_"):
                    continue
                if name in _class_level(facts):
                    continue
                seen.add(name)
                near = difflib.get_close_matches(name, sorted(written), n=1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                yield Hit(
                    event.site,
                    f"{facts.name}.backward reads `{method.ctx}.{name}`, which forward never sets{hint}",
                    fix=f"set {method.ctx}.{name} in forward",
                )


def _class_level(facts: ClassFacts) -> set[str]:
    """Names assigned in the class body: code in the old style reads them through self."""
    return {t.id for s in facts.node.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
