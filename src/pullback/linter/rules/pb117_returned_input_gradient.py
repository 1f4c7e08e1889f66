"""PB117."""

from __future__ import annotations

from ..facts import ClassFacts
from ..values import Value
from .pb116_ignored_output_gradient import IgnoredOutputGradient


class ReturnedInputGradient(IgnoredOutputGradient):
    """forward returns one of its inputs among the outputs, and backward ignores that output's gradient.

    Why it matters:
        Whatever is computed from the returned input no longer trains it.

    How it is measured:
        An output that is an input (the same object or a view of it) and whose gradient argument takes part in nothing.

    Instead:
        Add that gradient to the input's, or do not return the input.
    """

    code = "PB117"
    name = "returned-input-gradient"
    severity = "error"
    bad = """
class ScaleAndPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x.exp() * k, x.view_as(x)

    @staticmethod
    def backward(ctx, grad_scaled, grad_x):
        return grad_scaled * ctx.k, None
"""
    good = """
class ScaleAndPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k, x.view_as(x)

    @staticmethod
    def backward(ctx, grad_scaled, grad_x):
        return grad_scaled * ctx.k + grad_x, None
"""

    def wanted(self, output: Value) -> bool:
        return bool(output.shares("input", "is", "view"))

    def find(self, facts: ClassFacts):
        yield from super().find(facts)

    def message(self, facts: ClassFacts, name: str, index: int, output: Value) -> str:
        keys = [k for k in output.shares("input", "is", "view") if isinstance(k, int)]
        what = f"`{facts.input_name(keys[0])}`" if keys else "an input"
        return f"{facts.name}.forward returns its input {what} as output {index + 1}, and backward ignores {name}"
