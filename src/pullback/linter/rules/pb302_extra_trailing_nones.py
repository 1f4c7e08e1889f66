"""PB302."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class ExtraTrailingNones(Rule):
    """backward returns more values than forward has inputs; the extra ones are None.

    Why it matters:
        torch drops them, but the two lists have drifted apart, which may hide gradients that are shifted by one place.

    How it is measured:
        The number of returned values is compared with forward's parameters, where neither has a variable part.

    Instead:
        Return one value for each input.
    """

    code = "PB302"
    name = "extra-trailing-nones"
    severity = "note"
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None, None
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
        if facts.forward is None or not facts.own(facts.backward) or facts.vararg_index is not None:
            return
        total = len(facts.inputs)
        for form in facts.gradients:
            if form.items is not None and len(form.items) > total and all(v.is_none for v in form.items[total:]):
                extra = len(form.items) - total
                yield Hit(
                    form.site,
                    f"{facts.name}.backward returns {len(form.items)} values for {total} input{'s' if total != 1 else ''}: {extra} "
                    "trailing None too many",
                    fix="remove the extra None, and check the order of the others",
                )
                return
