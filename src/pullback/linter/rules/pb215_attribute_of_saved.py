"""PB215."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import AttributeWrite
from ..facts import ClassFacts
from ..rule import Hit, Rule

_OWN = frozenset(["data", "grad", "requires_grad", "names"])


class AttributeOfSaved(Rule):
    """backward writes to a Python attribute of a saved tensor.

    Why it matters:
        With saved-tensor hooks (checkpointing, offloading) the unpacked tensor is another object: the attribute is
        missing, or what is written to it is lost.

    How it is measured:
        Assignments to attributes of unpacked saved tensors that torch does not define.

    Instead:
        Keep the attribute itself on ctx (`ctx.main_grad = w.main_grad`).

    References:
        pytorch#126676
    """

    code = "PB215"
    name = "attribute-of-saved"
    severity = "warning"
    bad = """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            w.main_grad += x.t() @ grad_output
        return grad_output @ w.t(), None
"""
    good = """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.main_grad = w.main_grad
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            ctx.main_grad += x.t() @ grad_output
        return grad_output @ w.t(), None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            seen: set[str] = set()
            for event in method.of(AttributeWrite):
                if event.value.has("saved", "is") and event.attribute not in _OWN | seen and not event.via:
                    seen.add(event.attribute)
                    yield Hit(
                        event.site,
                        f"{facts.name}.backward writes `.{event.attribute}` of a saved tensor: with saved-tensor hooks it is another object",
                        fix=f"keep it in forward: ctx.{event.attribute} = ….{event.attribute}",
                    )
