"""PB110."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..facts import ClassFacts
from ..nodes import walk
from ..project import dotted
from ..rule import Hit, Rule
from .pb109_too_few_gradients import number_of_gradients


class TooFewForOptional(Rule):
    """backward returns too few gradients once an optional argument is passed, and a call passes it.

    Why it matters:
        `apply(x)` works and `apply(x, scale)` raises: each argument that is passed needs a place in backward's result.

    How it is measured:
        Calls of `apply` in the same file are counted and compared with the returns of backward. Without such a call nothing is reported.

    Instead:
        Return one value for each parameter of forward; torch drops trailing Nones that are too many.
    """

    code = "PB110"
    name = "too-few-for-optional"
    severity = "error"
    bad = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2.0):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k


def triple(x):
    return Scale.apply(x, 3.0)
"""
    good = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2.0):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None


def triple(x):
    return Scale.apply(x, 3.0)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.forward is None or facts.setup is not None or not facts.own(facts.backward) or not facts.whole:
            return
        required, total = facts.forward.required, len(facts.inputs)
        short = [f for f in facts.gradients if (n := number_of_gradients(f)) is not None and required <= n < total and not f.bare]
        if not short or f"{facts.name}.apply".encode() not in facts.source.data:
            return
        calls = _apply_calls(facts)
        for form in short:
            count = number_of_gradients(form) or 0
            call = next((c for c, passed in calls if passed > count), None)
            if call is not None:
                yield Hit(
                    form.site,
                    f"{facts.name}.backward returns {count} gradient{'s' if count != 1 else ''}, but the call in line {call.lineno} "
                    f"passes {dict(calls)[call]} arguments",
                    fix="return one value for each parameter of forward",
                    seen=(f"line {call.lineno}: {facts.text(call)}",),
                )


def _apply_calls(facts: ClassFacts) -> list[tuple[ast.Call, int]]:
    return [(n, len(n.args) + len(n.keywords)) for n in walk(facts.source.tree) if isinstance(n, ast.Call) and _applies(facts, n)]


def _applies(facts: ClassFacts, node: ast.Call) -> bool:
    return dotted(node.func) == f"{facts.name}.apply" and not any(isinstance(a, ast.Starred) for a in node.args)
