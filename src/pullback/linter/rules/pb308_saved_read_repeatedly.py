"""PB308."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import SavedRead
from ..facts import ClassFacts
from ..rule import Hit, Rule


class SavedReadRepeatedly(Rule):
    """ctx.saved_tensors is read several times on one path.

    Why it matters:
        Each read unpacks everything again and runs the saved-tensor hooks (recomputation, copies from the CPU).

    How it is measured:
        Reads that can both happen in one backward; those in branches that exclude each other do not count.

    Instead:
        Unpack once.
    """

    code = "PB308"
    name = "saved-read-repeatedly"
    severity = "note"
    bad = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.saved_tensors[1], grad_output * ctx.saved_tensors[0]
"""
    good = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            for event in method.of(SavedRead):
                before = [b for b in event.before if not b.via and not _exclude(b, event)]
                if before and not event.via:
                    yield Hit(
                        event.node,
                        f"{facts.name}.backward unpacks ctx.saved_tensors again (first in line {getattr(before[0].node, 'lineno', 0)})",
                        fix="unpack once, at the top of backward",
                    )
                    break


def _exclude(a: SavedRead, b: SavedRead) -> bool:
    return any(x.positive is not y.positive and x.same_test(y) for x in a.guards for y in b.guards)
