"""PB311."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule, edit


class NonStaticMethod(Rule):
    """forward, backward or setup_context is not a staticmethod.

    Why it matters:
        torch documents static methods; a plain method works by accident through the class, and fails on an instance and in some tools.

    How it is measured:
        Their decorators.

    Instead:
        `@staticmethod`.
    """

    code = "PB311"
    name = "non-static-method"
    severity = "note"
    bad = """
class Double(torch.autograd.Function):
    def forward(ctx, x):
        return x * 2

    def backward(ctx, grad_output):
        return grad_output * 2
"""
    good = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.setup, facts.backward):
            if method.node.decorator_list:
                continue
            start = facts.source.offset(method.node.lineno, method.node.col_offset)
            newline = "\r\n" if facts.source.lines[method.node.lineno - 1].endswith(b"\r\n") else "\n"
            safe = method.ctx != "self"
            yield Hit(
                method.node,
                f"{facts.name}.{method.name} is not a staticmethod",
                fix="@staticmethod",
                edits=edit(facts, start, start, f"@staticmethod{newline}{' ' * method.node.col_offset}", safe=safe),
            )
