"""PB121."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import FreeRead
from ..facts import ClassFacts
from ..nodes import walk
from ..rule import Hit, Rule


class OutsideTensor(Rule):
    """forward or backward reads a tensor from outside instead of an argument or a saved one.

    Why it matters:
        A tensor that is not an argument of `apply` gets no gradient, and in backward it may no longer be the one that forward saw.

    How it is measured:
        backward reads a module-level name that is also a parameter of forward, or either method reads a module-level
        nn.Parameter or a tensor made with requires_grad=True.

    Instead:
        Pass it to `apply` and save it.
    """

    code = "PB121"
    name = "outside-tensor"
    severity = "error"
    bad = """
x = torch.randn(3)


class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, x, b):
        ctx.save_for_backward(w)
        return w * x + b

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * x, grad_output * w, grad_output
"""
    good = """
x = torch.randn(3)


class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w, x, b):
        ctx.save_for_backward(w, x)
        return w * x + b

    @staticmethod
    def backward(ctx, grad_output):
        w, x = ctx.saved_tensors
        return grad_output * x, grad_output * w, grad_output
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        parameters = {p.name for p in facts.inputs}
        enclosing = {n.id for f in facts.enclosing for n in walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        enclosing |= {a.arg for f in facts.enclosing for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)}
        for method in facts.own(facts.forward, facts.backward):
            seen: set[str] = set()
            for event in method.of(FreeRead):
                if event.via or event.name in seen or event.name in enclosing or event.name in method.bound:
                    continue
                definition = facts.source.definitions.get(event.name)
                if method is facts.backward and event.name in parameters:
                    seen.add(event.name)
                    which = "the module-level one" if definition is not None else "not defined"
                    yield Hit(
                        event.site,
                        f"{facts.name}.backward reads `{event.name}`, which is {which}, not the argument that forward got",
                        fix=f"save {event.name} in forward and unpack it",
                    )
                elif definition is not None and _trains(definition):
                    seen.add(event.name)
                    yield Hit(
                        event.site,
                        f"{facts.name}.{method.name} reads the module-level tensor `{event.name}`, which requires grad but gets none from here",
                        fix=f"pass {event.name} to apply",
                    )


def _trains(node: ast.stmt) -> bool:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
        return False
    name = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else getattr(node.value.func, "id", "")
    flagged = any(k.arg == "requires_grad" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.value.keywords)
    return flagged or name in ("Parameter", "requires_grad_")
