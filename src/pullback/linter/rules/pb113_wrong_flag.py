"""PB113."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import Bind
from ..facts import ClassFacts
from ..nodes import walk
from ..rule import Hit, Rule, named


class WrongFlag(Rule):
    """The needs_input_grad flag of one input decides about the gradient of another.

    Why it matters:
        As soon as the first input is frozen the second one silently gets no gradient.

    How it is measured:
        A returned name that is computed only under the flag of another position, and early returns of nothing but
        None whose test leaves out inputs that get gradients elsewhere.

    Instead:
        Test the flag of the same position.
    """

    code = "PB113"
    name = "wrong-flag"
    severity = "error"
    bad = """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = grad_output @ w
        if ctx.needs_input_grad[1]:
            gw = grad_output.t() @ x
        if ctx.needs_input_grad[1]:
            gb = grad_output.sum(0)
        return gx, gw, gb
"""
    good = """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = grad_output @ w
        if ctx.needs_input_grad[1]:
            gw = grad_output.t() @ x
        if ctx.needs_input_grad[2]:
            gb = grad_output.sum(0)
        return gx, gw, gb
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            yield from self._bound_under_other(facts, list(method.of(Bind)))
            yield from self._early_return(facts)

    def _bound_under_other(self, facts: ClassFacts, binds: list[Bind]) -> Iterator[Hit]:
        names: dict[str, set[int]] = {}
        for form in facts.gradients:
            for index, node in enumerate(form.nodes or ()):
                if isinstance(node, ast.Name):
                    names.setdefault(node.id, set()).add(index)
        for name, positions in names.items():
            made = [b for b in binds if b.name == name and not b.value.is_none]
            flags = [{f for g in b.guards if g.positive for f in g.flags} for b in made]
            alone = [f for f in flags if len(f) == 1]
            if len(positions) != 1 or not made or len(alone) != len(made) or any(not _one(b) for b in made):
                continue
            (position,) = positions
            used = set().union(*alone)
            if position not in used and "*" not in used and self._only_there(facts, name, made) and position < len(facts.inputs):
                flag = next(iter(used))
                yield Hit(
                    made[0].site,
                    f"{facts.name}.backward computes the gradient of `{facts.input_name(position)}` only if "
                    f"`{facts.input_name(flag)}` needs one (needs_input_grad[{flag}])",
                    fix=f"test ctx.needs_input_grad[{position}]",
                )

    def _only_there(self, facts: ClassFacts, name: str, made: list[Bind]) -> bool:
        assert facts.backward is not None
        count = 0
        for node in walk(facts.backward.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                count += 1
        nones = sum(1 for n in walk(facts.backward.node) if isinstance(n, ast.Assign) and _assigns_none(n, name))
        return count - nones <= len(made)

    def _early_return(self, facts: ClassFacts) -> Iterator[Hit]:
        for form in facts.gradients:
            if form.items is None or not all(v.is_none for v in form.items) or not form.guards:
                continue
            guard = form.guards[-1]
            if guard.positive or not guard.flags or "*" in guard.flags or guard.mode not in ("one", "any"):
                continue
            given = {i for other in facts.gradients if other is not form and other.items for i, v in enumerate(other.items) if not v.is_none}
            left = sorted(i for i in given if i not in guard.flags and i < len(facts.inputs))
            if left:
                yield Hit(
                    form.site,
                    f"{facts.name}.backward returns only None here although {named([facts.input_name(i) for i in left])} may need a "
                    "gradient: the test leaves out its flag",
                    fix="test any(ctx.needs_input_grad)",
                )


def _one(bind: Bind) -> bool:
    return any(g.positive and g.mode == "one" for g in bind.guards)


def _assigns_none(node: ast.Assign, name: str) -> bool:
    if isinstance(node.value, ast.Constant) and node.value.value is None:
        return any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
            for t, v in zip(target.elts, node.value.elts, strict=True):
                if isinstance(t, ast.Name) and t.id == name and isinstance(v, ast.Constant) and v.value is None:
                    return True
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.BinOp):
            return any(isinstance(t, ast.Name) and t.id == name for t in target.elts)
    return False
