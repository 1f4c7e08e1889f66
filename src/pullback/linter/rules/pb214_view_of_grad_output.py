"""PB214."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule, edit

_KNOWN_DECORATORS = frozenset(["staticmethod", "classmethod", "custom_bwd", "once_differentiable", "no_grad"])


class ViewOfGradOutput(Rule):
    """backward flattens grad_output with `.view()`.

    Why it matters:
        grad_output may have any strides (after `.sum()`, `.t()`, `torch.cat`); `.view` that merges dimensions then raises.

    How it is measured:
        `.view(-1)`, `.view(-1, n)` and `.view(n, -1)` on a gradient argument that was not made contiguous.

    Instead:
        `.reshape(...)`.
    """

    code = "PB214"
    name = "view-of-grad-output"
    severity = "warning"
    bad = """
class Flatten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(x.shape[0], -1) * 2

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output.view(-1) * 2).reshape(ctx.shape)
"""
    good = """
class Flatten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(x.shape[0], -1) * 2

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output.reshape(-1) * 2).reshape(ctx.shape)
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            if set(method.decorators) - _KNOWN_DECORATORS or b"is_contiguous" in _body(facts):
                continue
            for event in method.of(Call):
                node = event.node
                if (
                    event.name != "view"
                    or event.via
                    or event.receiver is None
                    or not isinstance(node, ast.Call)
                    or not isinstance(node.func, ast.Attribute)
                ):
                    continue
                if event.receiver.shares("grad", "is", "view") and not event.receiver.shares("grad", "maybe") and _merges(node):
                    end = facts.source.span(node.func)[1]
                    yield Hit(
                        node,
                        f"{facts.name}.backward: `{facts.text(node)}` raises for a grad_output that is not contiguous",
                        fix="reshape in place of view",
                        edits=edit(facts, end - len("view"), end, "reshape"),
                    )


def _merges(node: ast.Call) -> bool:
    arguments = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
    wild = [i for i, a in enumerate(arguments) if _is(a, -1)]
    others = [a for i, a in enumerate(arguments) if i not in wild]
    return len(wild) == 1 and len(arguments) <= 2 and not (others and all(_is(a, 1) for a in others))


def _is(node: ast.expr, value: int) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is(node.operand, -value)
    return isinstance(node, ast.Constant) and node.value == value


def _body(facts: ClassFacts) -> bytes:
    assert facts.backward is not None
    start, end = facts.source.span(facts.backward.node)
    return facts.source.data[start:end]
