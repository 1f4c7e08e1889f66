"""PB206."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Save
from ..facts import ClassFacts
from ..rule import Hit, Rule


class SavedTwice(Rule):
    """save_for_backward is called twice on one path.

    Why it matters:
        The second call replaces the first: what was saved before is lost.

    How it is measured:
        Calls that can both run in one forward; branches that exclude each other do not count.

    Instead:
        One call with all tensors.
    """

    code = "PB206"
    name = "saved-twice"
    severity = "warning"
    bad = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
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
        for method in facts.own(*facts.before):
            for save in method.of(Save):
                if any(not _exclude(save, other) for other in save.before) and not save.forward_mode:
                    yield Hit(
                        save.site,
                        f"{facts.name}.{method.name} calls save_for_backward a second time: what the first call saved is lost",
                        fix="one call with all tensors",
                    )


def _exclude(a: Save, b: Save) -> bool:
    return any(x.positive is not y.positive and x.same_test(y) for x in a.guards for y in b.guards)
