"""PB103."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import torch_names as names
from ..events import Call, Write
from ..facts import ClassFacts
from ..rule import Hit, Rule, once_a_site

_COPIES = (names.MAYBE_COPIES | names.CASTS | {"clone"}) - {"ravel", "asarray"}
_VIEWS = names.VIEWS


class DiscardedTemporary(Rule):
    """An in-place operation or collective works on a temporary copy that nobody keeps.

    Why it matters:
        `dist.all_reduce(x.contiguous())` changes x only when x happens to be contiguous; otherwise the result is lost.

    How it is measured:
        Expression statements whose written tensor is the direct result of `contiguous`, `reshape`, a cast or `clone`.

    Instead:
        Bind the copy to a name, and use it afterwards.
    """

    code = "PB103"
    name = "discarded-temporary"
    severity = "error"
    bad = """
class ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        dist.all_reduce(out.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
"""
    good = """
class ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        yield from once_a_site(self._find(facts))

    def _find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.setup, facts.backward):
            discarded = {id(e.node) for e in method.of(Call) if e.discarded}
            for event in method.of(Write):
                copy = _copying_call(event.receiver)
                if id(event.node) in discarded and copy is not None and event.kind in ("method", "collective", "init"):
                    yield Hit(
                        event.site,
                        f"the result of `{event.by}` is lost in {event.via[-1] if event.via else f'{facts.name}.{method.name}'}: it "
                        f"works on a temporary whenever `{copy}` copies",
                        fix="bind the temporary to a name and use that name afterwards",
                    )


def _copying_call(node: ast.expr) -> str | None:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _COPIES:
            return node.func.attr
        if node.func.attr not in _VIEWS:
            return None
        node = node.func.value
    return None
