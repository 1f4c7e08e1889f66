"""PB304."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import CtxDelete, CtxWrite
from ..facts import ClassFacts
from ..rule import Hit, Rule


class CtxStateDestroyed(Rule):
    """backward deletes an attribute of ctx.

    Why it matters:
        A second backward (`retain_graph=True`, gradients of several outputs one after the other) fails with an AttributeError or works on None.

    How it is measured:
        `del ctx.name`, or `ctx.name = None`, in backward, of an attribute that forward sets.

    Instead:
        save_for_backward: torch frees saved tensors itself, and says so clearly when they are asked for again.
    """

    code = "PB304"
    name = "ctx-state-destroyed"
    severity = "note"
    bad = """
class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.order = order
        return x[order]

    @staticmethod
    def backward(ctx, grad_output):
        inverse = ctx.order.argsort()
        del ctx.order
        return grad_output[inverse], None
"""
    good = """
class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx, grad_output):
        (order,) = ctx.saved_tensors
        return grad_output[order.argsort()], None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        written = {e.attribute for e in facts.ctx_writes}
        for method in facts.own(facts.backward):
            gone = [
                e
                for e in method.record.events
                if (isinstance(e, CtxDelete) or (isinstance(e, CtxWrite) and e.value.is_none)) and e.attribute in written and not e.via
            ]
            for event in gone[:1]:
                names = ", ".join(f"ctx.{e.attribute}" for e in gone)
                yield Hit(
                    event.site,
                    f"{facts.name}.backward removes {names}: a second backward fails",
                    fix="keep tensors with save_for_backward, which torch frees itself",
                )
