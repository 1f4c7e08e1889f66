"""PB109."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...report.finding import Edit
from ..events import Returned
from ..facts import ClassFacts
from ..rule import Hit, Rule, insert_after


class TooFewGradients(Rule):
    """backward returns fewer gradients than forward has inputs, on some path.

    Why it matters:
        The engine raises as soon as that path is taken.

    How it is measured:
        The number of returned values on every path is compared with forward's parameters. Parameters with a default
        count only in the setup_context style, where torch fills them in. A bare `return None` is taken for an export
        stub or an early way out.

    Instead:
        Return one value for each input, None where there is no gradient.
    """

    code = "PB109"
    name = "too-few-gradients"
    severity = "error"
    safe = False
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k
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
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.forward is None or not facts.own(facts.backward):
            return
        total = len(facts.inputs)
        wanted = total if facts.setup is not None else facts.forward.required
        for form in facts.gradients:
            count = number_of_gradients(form)
            if count is None or count >= wanted or form.bare or form.value.is_none:
                continue
            missing = [p.name for p in facts.inputs[count:wanted]]
            what = "a list, which counts as one gradient," if form.value.container == "list" else f"{count} gradient{'s' if count != 1 else ''}"
            yield Hit(
                form.site,
                f"{facts.name}.backward returns {what} for {wanted} inputs (nothing for {', '.join(missing)})",
                fix="return one value for each input of forward, None where there is no gradient",
                edits=_append_none(facts, form, count, wanted),
            )


def number_of_gradients(form: Returned) -> int | None:
    """Return how many gradients a return form has for the engine, None where that is not known."""
    return 1 if form.bare else None if form.items is None else len(form.items)


def _append_none(facts: ClassFacts, form: Returned, count: int, wanted: int) -> tuple[Edit, ...]:
    if form.bare or form.nodes is None or len(form.nodes) != count or form.value.container == "list" or not isinstance(form.node, ast.Return):
        return ()
    if form.node.value is None or isinstance(form.node.value, ast.IfExp):
        return ()
    safe = all(p.kind == "other" for p in facts.inputs[count:wanted])
    return insert_after(facts, form.nodes[-1], ", None" * (wanted - count), safe=safe)
