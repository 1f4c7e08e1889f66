"""PB114."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import UnboundRead
from ..facts import ClassFacts
from ..rule import Hit, Rule


class UnboundGradient(Rule):
    """A name is bound only if one input needs a gradient, and read whether or not it does.

    Why it matters:
        UnboundLocalError as soon as that input is frozen.

    How it is measured:
        Names bound under a test of needs_input_grad or requires_grad, with no binding on the other path, read outside that test.

    Instead:
        Bind the name to None before the test.
    """

    code = "PB114"
    name = "unbound-gradient"
    severity = "error"
    bad = """
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            gx = grad_output @ w.t()
        if ctx.needs_input_grad[1]:
            gw = x.t() @ grad_output
        return gx, gw
"""
    good = """
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = grad_output @ w.t()
        if ctx.needs_input_grad[1]:
            gw = x.t() @ grad_output
        return gx, gw
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.setup, facts.backward):
            for event in method.of(UnboundRead):
                if event.via:
                    continue
                guard = event.bound_under
                condition = facts.text(guard.test) if guard.positive else f"not {facts.text(guard.test)}"
                yield Hit(
                    event.node,
                    f"{facts.name}.{method.name} reads `{event.name}`, which is bound only if `{condition}`",
                    fix=f"{event.name} = None before the test",
                )
