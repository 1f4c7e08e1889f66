"""PB118."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import torch_names as names
from ..events import Test
from ..facts import ClassFacts
from ..rule import Hit, Rule, insert_after


class MethodNotCalled(Rule):
    """A method such as is_contiguous is tested for truth instead of being called.

    Why it matters:
        A bound method is always true: the guard never, or always, fires.

    How it is measured:
        Conditions that are an attribute named after one of the tensor's `is_…()` methods.

    Instead:
        Call it.
    """

    code = "PB118"
    name = "method-not-called"
    severity = "error"
    bad = """
class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, angle):
        ctx.angle = angle
        return rotate(x, angle)

    @staticmethod
    def backward(ctx, grad_output):
        if not grad_output.is_contiguous:
            grad_output = grad_output.contiguous()
        return rotate(grad_output, -ctx.angle), None
"""
    good = """
class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, angle):
        ctx.angle = angle
        return rotate(x, angle)

    @staticmethod
    def backward(ctx, grad_output):
        if not grad_output.is_contiguous():
            grad_output = grad_output.contiguous()
        return rotate(grad_output, -ctx.angle), None
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(*facts.methods):
            seen: set[int] = set()
            for event in method.of(Test):
                node = event.node
                if event.via or not isinstance(node, ast.Attribute) or node.attr not in names.METHODS_TESTED or id(node) in seen:
                    continue
                if not _may_be_tensor(node.value, method.ctx) or "dtype" in facts.text(node.value):
                    continue
                seen.add(id(node))
                yield Hit(
                    node,
                    f"`{facts.text(node)}` is a method and always true: it is not called",
                    fix=f"{facts.text(node)}()",
                    edits=insert_after(facts, node, "()"),
                )


def _may_be_tensor(node: ast.expr, ctx: str | None) -> bool:
    """Whether an expression may be a tensor: a name other than ctx, or what ctx keeps; attributes of other things have attributes of their own."""
    if isinstance(node, ast.Name):
        return node.id != ctx
    return not isinstance(node, ast.Attribute) or (isinstance(node.value, ast.Name) and node.value.id == ctx)
