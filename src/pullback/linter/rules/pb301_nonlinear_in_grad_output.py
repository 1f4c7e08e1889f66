"""PB301."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule


class NonlinearInGradOutput(Rule):
    """The returned gradient is not linear in grad_output: sign, abs, clamp, a comparison or a norm of it is used.

    Why it matters:
        A vector-Jacobian product is linear in grad_output. Guided backpropagation and clipping are not, on purpose;
        then the gradient depends on the scale of the loss, and others should be told.

    How it is measured:
        The results of operations that are not linear are followed into what backward returns.

    Instead:
        If it is meant, declare it: `__pullback__ = {"exact": False, "linear": False, "reason": "…"}`.
    """

    code = "PB301"
    name = "nonlinear-in-grad-output"
    severity = "note"
    bad = """
class ClipGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-ctx.limit, ctx.limit), None
"""
    good = """
class ClipGradient(torch.autograd.Function):
    __pullback__ = {"exact": False, "linear": False, "reason": "gradient clipping"}

    @staticmethod
    def forward(ctx, x, limit):
        ctx.limit = limit
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clamp(-ctx.limit, ctx.limit), None
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if facts.declared & {"linear", "exact", "surrogate"}:
            return
        for method in facts.own(facts.backward):
            lines = sorted({r.key for form in facts.gradients for v in form.value.flat() for r in v.refs if r.root == "nonlinear"}, key=str)
            if lines:
                node = method.record.bends.get(lines[0])  # type: ignore[arg-type]
                if node is not None:
                    yield Hit(
                        node,
                        f"{facts.name}.backward is not linear in grad_output: `{facts.text(node)}` goes into the gradient",
                        fix='if it is meant: __pullback__ = {"exact": False, "linear": False, "reason": "…"}',
                    )
