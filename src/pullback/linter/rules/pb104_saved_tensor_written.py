"""PB104."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Write
from ..facts import ClassFacts
from ..rule import Hit, Rule, once_a_site, through


class SavedTensorWritten(Rule):
    """backward changes a tensor that was kept for it.

    Why it matters:
        A saved tensor is the input itself, not a copy: the caller's data changes, and a second backward starts from changed values.

    How it is measured:
        In-place writes are followed back to `ctx.saved_tensors`, and to ctx attributes whose changed value goes into the returned gradient.

    Instead:
        Use the out-of-place operation, or clone first.
    """

    code = "PB104"
    name = "saved-tensor-written"
    severity = "error"
    bad = """
class LogSoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = x.softmax(-1)
        ctx.save_for_backward(p)
        return -p.log().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        p.mul_(p.shape[-1]).sub_(1)
        return p * grad_output
"""
    good = """
class LogSoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = x.softmax(-1)
        ctx.save_for_backward(p)
        return -p.log().sum()

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return (p * p.shape[-1] - 1) * grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        yield from once_a_site(self._find(facts))

    def _find(self, facts: ClassFacts) -> Iterator[Hit]:
        returned = {r.key for form in facts.gradients for v in form.value.flat() for r in v.refs if r.root == "ctx"}
        for method in facts.own(facts.backward):
            for event in method.of(Write):
                if event.target.shares("grad"):
                    continue
                if event.target.shares("saved"):
                    what = "a saved tensor"
                elif set(event.target.shares("ctx", "is", "view")) & returned and event.kind in ("method", "collective"):
                    what = f"`ctx.{event.target.shares('ctx', 'is', 'view')[0]}`"
                else:
                    continue
                yield Hit(
                    event.site,
                    f"{facts.name}.backward changes {what} in place (`{event.by}` on "
                    f"`{facts.text(event.receiver) if not event.via else event.via[-1]}`{through(event.via)})",
                    fix="use the out-of-place operation, or clone the tensor first",
                    cause="a saved tensor is shared with the caller and with the next backward",
                )
