"""PB119."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import FreeRead, StateRead, StateWrite
from ..facts import ClassFacts
from ..rule import Hit, Rule


class SharedState(Rule):
    """forward leaves values for backward on the class or in a global.

    Why it matters:
        The second call overwrites what the first one left: with two calls before backward, or on two replicas, gradients are silently wrong.

    How it is measured:
        An assignment in forward to an attribute of the class, or to a name declared global, whose value comes from
        the inputs, and a read of it in backward.

    Instead:
        `ctx.save_for_backward` for tensors, `ctx.name = value` for the rest.
    """

    code = "PB119"
    name = "shared-state"
    severity = "error"
    bad = """
class Square(torch.autograd.Function):
    kept = None

    @staticmethod
    def forward(ctx, x):
        Square.kept = x.clone()
        return x**2

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * Square.kept * grad_output
"""
    good = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.backward is None:
            return
        read = {(e.owner, e.name) for e in facts.backward.of(StateRead)} | {("global", e.name) for e in facts.backward.of(FreeRead)}
        for method in facts.own(*facts.before):
            for event in method.of(StateWrite):
                from_inputs = event.value.is_tensor or event.value.shares("input")
                if from_inputs and (event.owner, event.name) in read:
                    where = f"the class attribute `{event.name}`" if event.owner == "class" else f"the global `{event.name}`"
                    yield Hit(
                        event.site,
                        f"{facts.name}.{method.name} keeps a value for backward in {where}: a second call overwrites it",
                        fix="ctx.save_for_backward(...) for tensors, an attribute of ctx for the rest",
                    )
