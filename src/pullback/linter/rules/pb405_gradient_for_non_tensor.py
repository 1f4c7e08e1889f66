"""PB405."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class GradientForNonTensor(Rule):
    """backward returns a gradient at the place of an argument that is not a tensor.

    Why it matters:
        The engine raises: "returned a gradient different than None, but the corresponding forward input was not a Variable".

    How it is measured:
        The parameter is annotated as a number, string or bool, or has such a default, and backward returns a tensor there.

    Instead:
        None at that place.

    Limits:
        Off by default: annotations lie.
    """

    code = "PB405"
    name = "gradient-for-non-tensor"
    severity = "warning"
    default = False
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k: float):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ctx.k, (grad_output * x).sum()
"""
    good = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k: float):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if not facts.own(facts.backward):
            return
        for parameter in facts.inputs:
            if parameter.kind == "other":
                form = next((f for f in facts.gradients if f.items and parameter.index < len(f.items) and f.items[parameter.index].is_tensor), None)
                if form is not None:
                    yield Hit(
                        form.site, f"{facts.name}.backward returns a gradient for `{parameter.name}`, which is not a tensor", fix="None at that place"
                    )
