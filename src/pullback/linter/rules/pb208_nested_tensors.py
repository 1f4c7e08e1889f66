"""PB208."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..facts import ClassFacts
from ..nodes import walk
from ..rule import Hit, Rule


class NestedTensors(Rule):
    """Tensors inside a list or dict go in or out of a Function.

    Why it matters:
        Autograd looks only at arguments and outputs that are tensors themselves: tensors in a container are not tracked, and get or give no gradient.

    How it is measured:
        forward returns a list, a dict, or a tuple holding one; or a parameter annotated as a container of tensors is given a gradient by backward.

    Instead:
        Pass and return tensors flat: `apply(*tensors)`, `return tuple(outputs)`.
    """

    code = "PB208"
    name = "nested-tensors"
    severity = "warning"
    bad = """
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return [x * 2, x * 3]

    @staticmethod
    def backward(ctx, grad_a, grad_b):
        return grad_a * 2 + grad_b * 3
"""
    good = """
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_a, grad_b):
        return grad_a * 2 + grad_b * 3
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for _ in facts.own(facts.forward):
            for form in facts.outputs:
                values = [form.value, *(form.items or ())]
                inner = next((v for v in values if v.container in ("list", "dict") and _holds_tensor(v)), None)
                if inner is not None:
                    yield Hit(
                        form.site,
                        f"{facts.name}.forward returns tensors in a {inner.container}: they are cut off from the graph",
                        fix="return the tensors themselves, as a tuple",
                    )
        if facts.own(facts.forward) and facts.own(facts.backward):
            for parameter in facts.inputs:
                if _container_of_tensors(parameter.node.annotation) and any(v.is_tensor or v.container for v in facts.gradient(parameter.index)):
                    yield Hit(
                        parameter.node,
                        f"the tensors in `{parameter.name}` of {facts.name}.forward are not tracked: they get no gradient",
                        fix=f"pass them flat: apply(..., *{parameter.name})",
                    )


def _holds_tensor(value) -> bool:
    if value.items is not None:
        return any(v.is_tensor for v in value.items)
    return (any(r.root in ("local", "input") for r in value.refs) and value.container == "dict") or value.is_tensor


def _container_of_tensors(node: ast.expr | None) -> bool:
    if not isinstance(node, ast.Subscript):
        return False
    head = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
    return head.lower() in ("list", "dict", "sequence") and any(
        isinstance(n, (ast.Name, ast.Attribute)) and (getattr(n, "id", "") == "Tensor" or getattr(n, "attr", "") == "Tensor")
        for n in walk(node.slice)
    )
