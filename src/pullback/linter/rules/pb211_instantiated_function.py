"""PB211."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..facts import ClassFacts
from ..nodes import walk
from ..rule import Hit, Rule


class InstantiatedFunction(Rule):
    """A Function is instantiated.

    Why it matters:
        Calling an instance raises in every torch since 1.5; Functions are used through `apply`.

    How it is measured:
        Calls of the class itself in the same file.

    Instead:
        `Name.apply(...)`.
    """

    code = "PB211"
    name = "instantiated-function"
    severity = "warning"
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
    return Exp()(x)
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
        name = facts.name.encode()
        if "." in facts.qualname or facts.source.data.count(name + b"(") <= facts.source.data.count(b"class " + name + b"("):
            return
        if sum(other.name == facts.name for other in facts.siblings) > 1 or self._shadowed(facts):
            return
        for node in walk(facts.source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == facts.name:
                yield Hit(node, f"`{facts.text(node)}` instantiates {facts.name}, a Function", fix=f"{facts.name}.apply(...)")

    def _shadowed(self, facts: ClassFacts) -> bool:
        return any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == facts.name and n is not facts.node for n in walk(facts.source.tree))
