"""PB123."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class TupleAsGradient(Rule):
    """A gradient returned by backward is itself a tuple or list.

    Why it matters:
        The engine raises a TypeError: each place must hold a tensor or None.

    How it is measured:
        Returned values are followed through names and helper functions that return several values.

    Instead:
        Unpack the helper's result.
    """

    code = "PB123"
    name = "tuple-as-gradient"
    severity = "error"
    bad = """
def product_rule(g, x, y):
    return g * y, g * x


class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        grads = product_rule(grad_output, *ctx.saved_tensors)
        return grads, grads
"""
    good = """
def product_rule(g, x, y):
    return g * y, g * x


class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        return product_rule(grad_output, *ctx.saved_tensors)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for _ in facts.own(facts.backward):
            for form in facts.gradients:
                nested = [i for i, v in enumerate(form.items or ()) if v.items is not None and v.container in ("tuple", "list")]
                if nested and (form.value.container == "tuple" or len(facts.inputs) == 1):
                    name = facts.input_name(nested[0])
                    what = form.items[nested[0]].container if form.items else "tuple"
                    yield Hit(
                        form.site,
                        f"{facts.name}.backward returns a {what} as the gradient of `{name}`",
                        fix="unpack it: each place holds one tensor or None",
                    )
