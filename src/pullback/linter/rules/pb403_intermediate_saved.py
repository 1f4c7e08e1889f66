"""PB403."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class IntermediateSaved(Rule):
    """forward saves an intermediate result, and backward is not once_differentiable.

    Why it matters:
        Autograd does not know how the intermediate depends on the inputs: second derivatives are silently wrong.

    How it is measured:
        A saved tensor that is neither an input nor an output, and a backward that uses it.

    Instead:
        `@once_differentiable`, or return the intermediate as an output and handle its gradient.

    Limits:
        Off by default: `pullback check --orders 2` decides (PB506).
    """

    code = "PB403"
    name = "intermediate-saved"
    severity = "warning"
    default = False
    bad = """
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        slope = 3 * x**2
        ctx.save_for_backward(slope)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (slope,) = ctx.saved_tensors
        return grad_output * slope
"""
    good = """
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x**2
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if not facts.whole or facts.once_differentiable or not facts.saves or not facts.gradients:
            return
        outputs = {r.key for v in facts.returned_outputs() for p in v.flat() for r in p.refs if r.root == "local" and r.how != "from"}
        for save in facts.saves:
            for value in save.values or ():
                made = {r.key for r in value.refs if r.root == "local" and r.how == "is"}
                if value.is_tensor and value.dtype != "int" and made and not made & outputs and not value.shares("input") and value.has("input"):
                    yield Hit(
                        save.site,
                        f"{facts.name}.forward saves an intermediate result: the second derivative through backward is silently wrong",
                        fix="@once_differentiable on backward, or save inputs and outputs only",
                    )
                    return
