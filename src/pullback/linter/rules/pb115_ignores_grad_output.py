"""PB115."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule
from ..values import Value


class IgnoresGradOutput(Rule):
    """backward returns a gradient without using grad_output.

    Why it matters:
        The chain rule is cut: a scaled loss (AMP, loss weights, a mean over several terms) gives the gradient of the unscaled one.

    How it is measured:
        No gradient argument takes part in any computation (its shape and dtype do not count, an overwritten name
        neither), while backward returns values made of saved tensors or new ones.

    Instead:
        Multiply by grad_output.
    """

    code = "PB115"
    name = "ignores-grad-output"
    severity = "error"
    bad = """
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, target):
        ctx.save_for_backward(p - target)
        return ((p - target) ** 2).sum() / 2

    @staticmethod
    def backward(ctx, grad_output):
        (difference,) = ctx.saved_tensors
        return difference, -difference
"""
    good = """
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, target):
        ctx.save_for_backward(p - target)
        return ((p - target) ** 2).sum() / 2

    @staticmethod
    def backward(ctx, grad_output):
        (difference,) = ctx.saved_tensors
        return difference * grad_output, -difference * grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        backward = facts.backward
        if backward is None or not facts.own(backward) or facts.escapes or not (backward.positional or backward.vararg):
            return
        if any(facts.grad_uses(i) for i in range(len(backward.positional) + 1)):
            return
        names = [a.arg for a in backward.positional] or [f"*{backward.vararg}"]
        for form in facts.gradients:
            if form.items is not None and any(_made_here(v) for v in form.items):
                yield Hit(
                    form.site,
                    f"{facts.name}.backward returns a gradient without using `{names[0]}`",
                    fix=f"multiply by {names[0]}: backward computes a vector-Jacobian product",
                )
                return


def _made_here(value: Value) -> bool:
    """Whether a value is a tensor made of saved tensors (zeros and unknown results of calls do not count)."""
    return value.is_tensor and value.has("saved")
