"""PB101."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Write
from ..facts import ClassFacts
from ..rule import Hit, Rule, insert_first, once_a_site, through


class GradOutputWritten(Rule):
    """backward writes in place into grad_output.

    Why it matters:
        The engine may hand the same buffer to another consumer: the sibling's gradient changes with it, silently.

    How it is measured:
        Every in-place method, index assignment, augmented assignment and `out=` is followed back to the gradient
        arguments, through views, `contiguous`, `reshape`, unpacking and helper functions of the project.

    Instead:
        Work on a copy, or use the out-of-place operation.

    Limits:
        Writes by a kernel through a pointer are not seen; `pullback check` finds them (PB608).
    """

    code = "PB101"
    name = "grad-output-written"
    severity = "error"
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.mul_(ctx.k), None
"""
    good = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None
"""
    fixed = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.clone()
        return grad_output.mul_(ctx.k), None
"""

    collective = False

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        yield from once_a_site(self._find(facts))

    def _find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            names = facts.gradient_names
            for event in method.of(Write):
                keys = event.target.shares("grad")
                if not keys or (event.kind == "collective") is not self.collective:
                    continue
                known = isinstance(keys[0], int) and keys[0] < len(names)
                name = names[keys[0]] if known else method.vararg or "grad_output"  # type: ignore[index]
                edits = insert_first(facts, method, f"{name} = {name}.clone()") if known and facts.materializes else ()
                yield Hit(
                    event.site,
                    f"{facts.name}.backward writes in place into `{name}` (`{event.by}`{through(event.via)}), which belongs to the engine",
                    fix=f"{name} = {name}.clone() before the write, or the out-of-place operation",
                    edits=edits,
                    cause="the engine may hand one buffer to several consumers",
                )
