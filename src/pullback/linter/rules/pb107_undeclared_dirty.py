"""PB107."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Write
from ..facts import ClassFacts
from ..rule import Hit, Rule, once_a_site, through


class UndeclaredDirty(Rule):
    """forward changes an input in place without mark_dirty.

    Why it matters:
        Autograd does not know that the tensor changed: gradients of whatever used it before, or uses it later, are silently wrong.

    How it is measured:
        In-place writes in forward are followed back to its arguments (views, `contiguous` and helpers included);
        buffers that are neither returned nor differentiated are left alone.

    Instead:
        Work on a copy, or call `ctx.mark_dirty(x)` and return x.
    """

    code = "PB107"
    name = "undeclared-dirty"
    severity = "error"
    bad = """
class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output
"""
    good = """
class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        yield from once_a_site(self._find(facts))

    def _find(self, facts: ClassFacts) -> Iterator[Hit]:
        marks = [m for m in facts.marks if m.name == "mark_dirty"]
        if facts.escapes or any(not m.exact for m in marks) or facts.backward is None:
            return
        dirty = {k for m in marks for v in m.values for k in v.shares("input")}
        for method in facts.own(facts.forward):
            for event in method.of(Write):
                for key in event.target.shares("input"):
                    if isinstance(key, int) and key not in dirty and self._matters(facts, key):
                        name = facts.input_name(key)
                        sure = event.target.shares("input", "is", "view")
                        yield Hit(
                            event.site,
                            f"{facts.name}.forward changes its input `{name}` in place (`{event.by}`{through(event.via)}) without mark_dirty"
                            + ("" if sure else " whenever no copy was needed"),
                            fix=f"work on a copy of {name}, or ctx.mark_dirty({name}) and return it",
                        )

    def _matters(self, facts: ClassFacts, key: int) -> bool:
        returned = any(key in v.shares("input") for v in facts.returned_outputs())
        return returned or facts.gets_gradient(key)
