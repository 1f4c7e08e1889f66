"""PB108."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class DirtyNotReturned(Rule):
    """mark_dirty names a tensor that forward does not return.

    Why it matters:
        Autograd rebases the history of a dirty input onto the output that it is; without that output the history is lost or an error is raised.

    How it is measured:
        The arguments of mark_dirty are compared with everything forward returns.

    Instead:
        Return the changed input, or change a copy.
    """

    code = "PB108"
    name = "dirty-not-returned"
    severity = "error"
    bad = """
class Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.sub_(x.mean())
        ctx.mark_dirty(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output - grad_output.mean()) * 2
"""
    good = """
class Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.sub_(x.mean())
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output - grad_output.mean()
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if any(form.items is None for form in facts.outputs) or not facts.outputs:
            return
        returned = {(r.root, r.key) for v in facts.returned_outputs() for p in v.flat() for r in p.refs if r.how != "from"}
        for mark in facts.marks:
            if mark.name != "mark_dirty" or not mark.exact or not any(m.own and mark in m.record.events for m in facts.before):
                continue
            for value in mark.values:
                keys = {(r.root, r.key) for r in value.refs if r.root in ("input", "local") and r.how == "is"}
                if keys and not keys & returned:
                    index = next((k for root, k in keys if root == "input"), None)
                    name = facts.input_name(index) if index is not None else "a tensor"
                    yield Hit(
                        mark.site,
                        f"{facts.name}.forward marks {name if index is None else f'`{name}`'} as dirty but does not return it",
                        fix="return the changed input",
                    )
