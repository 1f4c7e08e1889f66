"""PB112."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Slice
from ..facts import ClassFacts
from ..rule import Hit, Rule


class MaybeEmptySlice(Rule):
    """A slice `x[-n:]` whose n is the length of a variable argument list, which may be 0.

    Why it matters:
        `x[-0:]` is all of x, not nothing: the gradients of other arguments are returned in place of none.

    How it is measured:
        Slices from a negated length to the end, where the length is that of `*args` or of what is left of the saved tensors.

    Instead:
        `x[len(x) - n:]`.
    """

    code = "PB112"
    name = "maybe-empty-slice"
    severity = "error"
    bad = """
class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, y, *params):
        ctx.f = f
        ctx.save_for_backward(y, *params)
        return f(y)

    @staticmethod
    def backward(ctx, grad_output):
        y, *params = ctx.saved_tensors
        grads = ctx.f.gradients(y, grad_output, params)
        return None, grads[0], *grads[-len(params):]
"""
    good = """
class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, y, *params):
        ctx.f = f
        ctx.save_for_backward(y, *params)
        return f(y)

    @staticmethod
    def backward(ctx, grad_output):
        y, *params = ctx.saved_tensors
        grads = ctx.f.gradients(y, grad_output, params)
        return None, grads[0], *grads[len(grads) - len(params):]
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.setup, facts.backward):
            for event in method.of(Slice):
                if any(str(r.key).endswith("+") for r in event.length.refs) and not any(_tests_length(facts, g.test) for g in event.guards):
                    yield Hit(
                        event.site,
                        f"{facts.name}.{method.name}: the slice `[{facts.text(event.text_node)}:]` takes everything when the length is 0",
                        fix="slice from len(x) - n",
                    )


def _tests_length(facts: ClassFacts, test: object) -> bool:
    text = facts.source.text(test)  # type: ignore[arg-type]
    return "len(" in text or ">" in text or text.isidentifier()
