"""PB307."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import AttributeWrite, Call, CtxWrite, Write
from ..facts import ClassFacts, Method
from ..rule import Hit, Rule


class NeedlessClone(Rule):
    """grad_output is cloned and the clone is only returned or read.

    Why it matters:
        A copy of the whole gradient for nothing: backward may return grad_output itself.

    How it is measured:
        A clone of a gradient argument that is never written to and never handed to other code.

    Instead:
        Use grad_output directly.
    """

    code = "PB307"
    name = "needless-clone"
    severity = "note"
    bad = """
class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output.clone()
        return grad_input * ctx.k, None
"""
    good = """
class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.k, None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            for event in method.of(Call):
                if event.name not in ("clone", "torch.clone") or event.via or event.discarded or getattr(event.node, "keywords", None):
                    continue
                if isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute) and isinstance(event.node.func.value, ast.Call):
                    continue
                mine = {r.key for r in event.result.refs if r.root == "cloned"}
                if mine and not _goes_elsewhere(method, mine):
                    yield Hit(
                        event.node,
                        f"`{facts.text(event.node)}` in {facts.name}.backward is never changed: the clone is not needed",
                        fix="use the gradient itself",
                    )


def _goes_elsewhere(method: Method, keys: set[int | str]) -> bool:
    for event in method.record.events:
        if isinstance(event, Write):
            values = [event.target]
        elif (
            isinstance(event, Call)
            and (event.kernel or not event.name.startswith("torch."))
            and (event.receiver is None or event.name in ("data_ptr", "numpy", "append"))
        ):
            values = list(event.arguments) + ([event.receiver] if event.receiver else [])
        elif isinstance(event, (CtxWrite, AttributeWrite)):
            values = [event.value if isinstance(event, CtxWrite) else event.assigned]
        else:
            continue
        if any(r.root == "local" and r.key in keys and r.how != "from" for v in values for r in v.all_refs()):
            return True
    return False
