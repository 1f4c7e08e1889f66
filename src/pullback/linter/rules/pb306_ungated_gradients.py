"""PB306."""

from __future__ import annotations

from collections.abc import Iterator

from .. import torch_names as names
from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule, named


class UngatedGradients(Rule):
    """backward computes several costly gradients whether or not they are needed.

    Why it matters:
        With a frozen input (fine-tuning) a matrix product is made for nothing.

    How it is measured:
        Two or more returned gradients that are each the result of a matrix product or convolution, in a backward that
        never looks at needs_input_grad.

    Instead:
        `if ctx.needs_input_grad[i]:` around each.
    """

    code = "PB306"
    name = "ungated-gradients"
    severity = "note"
    bad = """
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.t(), x.t() @ grad_output
"""
    good = """
class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = grad_output @ w.t() if ctx.needs_input_grad[0] else None
        gw = x.t() @ grad_output if ctx.needs_input_grad[1] else None
        return gx, gw
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            start, end = facts.source.span(facts.node)
            if b"needs_input_grad" in facts.source.data[start:end] or b"requires_grad" in facts.source.data[start:end] or facts.escapes:
                continue
            products = {
                r.key
                for e in method.of(Call)
                if e.name.rsplit(".", 1)[-1] in names.MATMULS
                for r in e.result.refs
                if r.root == "local" and r.how == "is"
            }
            for form in facts.gradients:
                costly = [
                    i
                    for i, v in enumerate(form.items or ())
                    if i < len(facts.inputs) and any(r.root == "local" and r.key in products and r.how in ("is", "view") for r in v.refs)
                ]
                if len(costly) > 1 and not form.guards:
                    yield Hit(
                        form.site,
                        f"{facts.name}.backward computes the gradients of {named([facts.input_name(i) for i in costly])} even if they are not needed",
                        fix="if ctx.needs_input_grad[i]: around each",
                    )
                    return
