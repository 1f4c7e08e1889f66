"""PB209."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule


class GradModeInForward(Rule):
    """forward asks torch.is_grad_enabled().

    Why it matters:
        `apply` runs forward with gradients switched off, so the answer is always False.

    How it is measured:
        Calls of torch.is_grad_enabled in forward or a helper of it, outside enable_grad.

    Instead:
        `any(ctx.needs_input_grad)`, or ask before apply.
    """

    code = "PB209"
    name = "grad-mode-in-forward"
    severity = "warning"
    bad = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        if torch.is_grad_enabled():
            ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y
"""
    good = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward):
            for event in method.of(Call):
                if (
                    event.name == "torch.is_grad_enabled"
                    and not event.via
                    and not any("enable_grad" in c or "set_grad_enabled" in c for c in event.contexts)
                ):
                    yield Hit(
                        event.node,
                        f"torch.is_grad_enabled() is always False in {facts.name}.forward",
                        fix="any(ctx.needs_input_grad), or ask before apply",
                    )
