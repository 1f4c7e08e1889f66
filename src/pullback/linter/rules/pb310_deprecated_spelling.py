"""PB310."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...report.finding import Edit
from ..events import Call, SavedRead
from ..facts import ClassFacts, Method
from ..project import dotted
from ..rule import Hit, Rule, edit, insert_after, replace_node

_AMP = {
    "torch.cuda.amp.custom_fwd": "custom_fwd",
    "torch.cuda.amp.custom_bwd": "custom_bwd",
    "torch.cuda.amp.autocast_mode.custom_fwd": "custom_fwd",
    "torch.cuda.amp.autocast_mode.custom_bwd": "custom_bwd",
}
_VARIABLES = ("torch.autograd.Variable", "torch.autograd.variable.Variable")
_REMOVED = {
    "torch.symeig": "torch.linalg.eigh",
    "torch.eig": "torch.linalg.eig",
    "torch.solve": "torch.linalg.solve",
    "torch.lstsq": "torch.linalg.lstsq",
    "torch.qr": "torch.linalg.qr",
    "torch.gesv": "torch.linalg.solve",
    "torch.potrf": "torch.linalg.cholesky",
    "torch.trtrs": "torch.linalg.solve_triangular",
    "torch.triangular_solve": "torch.linalg.solve_triangular",
    "torch.matrix_rank": "torch.linalg.matrix_rank",
}


class DeprecatedSpelling(Rule):
    """A name that torch has deprecated or removed.

    Why it matters:
        It warns today and fails in a later release, or fails already.

    How it is measured:
        torch.cuda.amp.custom_fwd and custom_bwd, `saved_variables`, `Variable(…)`, and functions that torch.linalg
        has replaced, in a Function's methods.

    Instead:
        `torch.amp.custom_fwd(device_type="cuda")`, `saved_tensors`, the tensor itself, torch.linalg.
    """

    code = "PB310"
    name = "deprecated-spelling"
    severity = "note"
    bad = """
class Square(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad_output):
        (x,) = ctx.saved_variables
        return 2 * x * grad_output
"""
    good = """
class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(*facts.methods):
            yield from self._decorators(facts, method)
            for event in method.of(SavedRead):
                if event.spelling == "saved_variables" and not event.via:
                    end = facts.source.span(event.node)[1]
                    renamed = edit(facts, end - len("saved_variables"), end, "saved_tensors")
                    yield Hit(event.node, "`saved_variables` was removed", fix="saved_tensors", edits=renamed)
            for event in method.of(Call):
                if isinstance(event.node, ast.Call) and not event.via and event.receiver is None:
                    yield from self._call(facts, event.node)

    def _call(self, facts: ClassFacts, node: ast.Call) -> Iterator[Hit]:
        name = facts.project.canonical(facts.source, dotted(node.func) or "")
        if name in _VARIABLES:
            plain = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
            simple = plain and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            yield Hit(
                node,
                "`Variable` does nothing since torch 0.4",
                fix="the tensor itself",
                edits=replace_node(facts, node, facts.source.text(node.args[0])) if simple else (),
            )
        elif name in _REMOVED:
            yield Hit(node, f"`{name}` was removed from torch", fix=_REMOVED[name])

    def _decorators(self, facts: ClassFacts, method: Method) -> Iterator[Hit]:
        for decorator in method.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            spelled = dotted(target) or ""
            full = facts.project.canonical(facts.source, spelled)
            if full in _AMP:
                new = f'torch.amp.{_AMP[full]}(device_type="cuda")'
                yield Hit(decorator, f"`{full}` is deprecated", fix=new, edits=_amp_edits(facts, decorator, target, _AMP[full]))


def _amp_edits(facts: ClassFacts, decorator: ast.expr, target: ast.expr, name: str) -> tuple[Edit, ...]:
    if "torch" not in facts.source.imports:
        return ()
    renamed = replace_node(facts, target, f"torch.amp.{name}")
    if not isinstance(decorator, ast.Call):
        return replace_node(facts, decorator, f'torch.amp.{name}(device_type="cuda")')
    if not decorator.args and not decorator.keywords:
        return replace_node(facts, decorator, f'torch.amp.{name}(device_type="cuda")')
    if decorator.args:
        return ()
    return renamed + insert_after(facts, decorator.keywords[-1].value, ', device_type="cuda"')
