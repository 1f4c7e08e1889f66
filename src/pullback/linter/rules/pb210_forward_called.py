"""PB210."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..facts import ClassFacts
from ..nodes import walk
from ..project import dotted
from ..rule import Hit, Rule, edit


class ForwardCalled(Rule):
    """`forward` of a Function is called directly instead of `apply`.

    Why it matters:
        Autograd then differentiates the code of forward, or cuts the graph; backward is never called.

    How it is measured:
        Calls `Name.forward(...)` in the same file, outside Functions, whose first argument is not a ctx.

    Instead:
        `Name.apply(...)`.
    """

    code = "PB210"
    name = "forward-called"
    severity = "warning"
    safe = False
    bad = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


def exp(x):
    return Exp.forward(None, x)
"""
    good = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


def exp(x):
    return Exp.apply(x)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if f"{facts.name}.forward(".encode() not in facts.source.data:
            return
        inside = {id(n) for other in facts.siblings for n in walk(other.node)}
        for node in walk(facts.source.tree):
            if not isinstance(node, ast.Call) or dotted(node.func) != f"{facts.name}.forward" or id(node) in inside or _passes_ctx(node):
                continue
            end = facts.source.span(node.func)[1]
            edits = edit(facts, end - len("forward"), end, "apply", safe=False) if facts.setup is not None else ()
            yield Hit(
                node,
                f"`{facts.text(node)}` calls {facts.name}.forward directly: its backward is not used",
                fix=f"{facts.name}.apply(...)",
                edits=edits,
            )


def _passes_ctx(node: ast.Call) -> bool:
    first = node.args[0] if node.args else None
    name = first.id if isinstance(first, ast.Name) else first.attr if isinstance(first, ast.Attribute) else ""
    return "ctx" in name.lower() or "context" in name.lower() or name == "self" or isinstance(first, (ast.Call, ast.Starred))
