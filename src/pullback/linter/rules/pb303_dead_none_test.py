"""PB303."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Test
from ..facts import ClassFacts
from ..rule import Hit, Rule


class DeadNoneTest(Rule):
    """backward tests a gradient for None, but gradients are materialised as zeros.

    Why it matters:
        The test never fires; the zeros are made and computed with.

    How it is measured:
        A gradient argument of a tensor output compared with None, in a class that never calls set_materialize_grads
        and whose forward always returns that many tensors.

    Instead:
        `ctx.set_materialize_grads(False)` in forward, or no test.
    """

    code = "PB303"
    name = "dead-none-test"
    severity = "note"
    bad = """
class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        (x,) = ctx.saved_tensors
        total = grad_sin * x.cos()
        if grad_cos is not None:
            total = total - grad_cos * x.sin()
        return total
"""
    good = """
class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        (x,) = ctx.saved_tensors
        total = torch.zeros_like(x)
        if grad_sin is not None:
            total = total + grad_sin * x.cos()
        if grad_cos is not None:
            total = total - grad_cos * x.sin()
        return total
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        backward = facts.backward
        if backward is None or not facts.whole or not facts.materializes or f"{facts.name}.backward(".encode() in facts.source.data:
            return
        if facts.forward is not None and set(facts.forward.decorators) - {"staticmethod", "custom_fwd"}:
            return
        seen: set[int] = set()
        for event in backward.of(Test):
            keys = [k for k in event.value.shares("grad", "is") if isinstance(k, int)]
            if not event.none or event.via or len(keys) != 1 or keys[0] in seen or keys[0] >= backward.required:
                continue
            output = facts.output(keys[0])
            if output is None or not output.is_tensor or any(len(f.items or ()) <= keys[0] for f in facts.outputs):
                continue
            seen.add(keys[0])
            yield Hit(
                event.node,
                f"`{facts.text(event.node)}` in {facts.name}.backward is decided beforehand: gradients that are not defined arrive as zeros",
                fix="ctx.set_materialize_grads(False) in forward, or no test",
            )
