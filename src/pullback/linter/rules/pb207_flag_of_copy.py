"""PB207."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import AttributeRead
from ..facts import ClassFacts, Method
from ..nodes import walk
from ..rule import Hit, Rule, replace_node
from ..values import Value


class FlagOfCopy(Rule):
    """requires_grad of a saved or copied tensor is asked instead of needs_input_grad.

    Why it matters:
        A copy made inside forward never requires grad, and an unpacked tensor may be a copy (checkpointing,
        offloading): the gradient is then skipped silently.

    How it is measured:
        Conditions on requires_grad of unpacked saved tensors in backward, and in forward of the result of `contiguous` or `reshape` of an input.

    Instead:
        `ctx.needs_input_grad[i]`.
    """

    code = "PB207"
    name = "flag-of-copy"
    severity = "warning"
    bad = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = grad_output * w if x.requires_grad else None
        gw = grad_output * x if w.requires_grad else None
        return gx, gw
"""
    good = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = grad_output * w if ctx.needs_input_grad[0] else None
        gw = grad_output * x if ctx.needs_input_grad[1] else None
        return gx, gw
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.backward):
            reads = [e for e in method.of(AttributeRead) if e.attribute == "requires_grad" and not e.via]
            conditions = _in_conditions(method) if reads else set()
            for event in reads:
                if (
                    event.attribute != "requires_grad"
                    or event.via
                    or id(event.node) not in conditions
                    or not self._applies(facts, method, event.value)
                ):
                    continue
                text = facts.text(event.node)
                key = _input(event.value, "is" if method is facts.backward else "maybe")
                flag = f"{method.ctx}.needs_input_grad[{key}]"
                usable = method.ctx is not None and key is not None
                yield Hit(
                    event.node,
                    f"{facts.name}.{method.name} asks `{text}` of a {'saved tensor' if method is facts.backward else 'copy'}, which may have lost it",
                    fix=flag if usable else "ctx.needs_input_grad",
                    edits=replace_node(facts, event.node, flag) if usable else (),
                )

    def _applies(self, facts: ClassFacts, method: Method, value: Value) -> bool:
        if method is facts.backward:
            return bool(value.shares("saved", "is"))
        return bool(value.shares("input", "maybe")) and not value.shares("input", "is", "view")


def _in_conditions(method: Method) -> set[int]:
    """Return the ids of the nodes that stand in a condition (an assertion decides nothing)."""
    tests = [n.test for n in walk(method.node) if isinstance(n, (ast.If, ast.IfExp, ast.While))]
    return {id(n) for test in tests for n in walk(test)}


def _input(value: Value, how: str) -> int | None:
    keys = [k for k in value.shares("input", how) if isinstance(k, int)]  # type: ignore[arg-type]
    return keys[0] if len(keys) == 1 else None
