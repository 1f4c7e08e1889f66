"""PB122."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class TooManyGradients(Rule):
    """backward returns more gradients than forward has inputs, and the extra ones are not None.

    Why it matters:
        The engine raises; often the gradients have shifted by one place.

    How it is measured:
        The number of returned values is compared with forward's parameters; extra trailing Nones are PB302.

    Instead:
        Return one value for each input, in their order.
    """

    code = "PB122"
    name = "too-many-gradients"
    severity = "error"
    bad = """
class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output, grad_output
"""
    good = """
class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.forward is None or not facts.own(facts.backward) or facts.vararg_index is not None:
            return
        total = len(facts.inputs)
        for form in facts.gradients:
            if form.items is not None and len(form.items) > total and any(not v.is_none for v in form.items[total:]):
                yield Hit(
                    form.site,
                    f"{facts.name}.backward returns {len(form.items)} gradients for {total} input{'s' if total != 1 else ''}",
                    fix="return one value for each input of forward, in their order",
                )
