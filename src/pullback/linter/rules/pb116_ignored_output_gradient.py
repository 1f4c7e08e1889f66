"""PB116."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule
from ..values import Value


class IgnoredOutputGradient(Rule):
    """The gradient of one of several outputs is ignored, and the output is not marked as non-differentiable.

    Why it matters:
        The output requires grad, so a loss on it trains nothing, without an error.

    How it is measured:
        A floating point output whose gradient argument takes part in nothing, while the others do. Integer and bool
        outputs, outputs of unknown kind, and marked ones are left alone.

    Instead:
        Add its term to the gradients, or `ctx.mark_non_differentiable(output)`.
    """

    code = "PB116"
    name = "ignored-output-gradient"
    severity = "error"
    bad = """
class SoftmaxLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        lse = torch.logsumexp(x, -1, keepdim=True)
        p = (x - lse).exp()
        ctx.save_for_backward(p)
        return p, lse

    @staticmethod
    def backward(ctx, grad_p, grad_lse):
        (p,) = ctx.saved_tensors
        return p * (grad_p - (grad_p * p).sum(-1, keepdim=True))
"""
    good = """
class SoftmaxLse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        lse = torch.logsumexp(x, -1, keepdim=True)
        p = (x - lse).exp()
        ctx.save_for_backward(p)
        ctx.mark_non_differentiable(lse)
        return p, lse

    @staticmethod
    def backward(ctx, grad_p, grad_lse):
        (p,) = ctx.saved_tensors
        return p * (grad_p - (grad_p * p).sum(-1, keepdim=True))
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        backward = facts.backward
        if backward is None or not facts.whole or facts.escapes or not facts.gradients:
            return
        counts = facts.output_counts
        if not counts or len(counts) != 1 or (count := counts.copy().pop()) < 2:
            return
        used = [bool(facts.grad_uses(i)) for i in range(count)]
        if not any(used):
            return
        for index in range(count):
            output = facts.output(index)
            if used[index] or output is None or not self.wanted(output) or marked(facts, output):
                continue
            names = facts.gradient_names
            name = f"`{names[index]}`" if index < len(names) else f"the gradient of output {index + 1}"
            parameter = backward.positional[index] if index < len(names) else backward.node.args.vararg
            yield Hit(
                parameter or backward.node,
                self.message(facts, name, index, output),
                fix="add its term to the gradients, or ctx.mark_non_differentiable(output) in forward",
            )

    def wanted(self, output: Value) -> bool:
        return output.is_tensor and output.dtype == "float" and not output.shares("input", "is", "view")

    def message(self, facts: ClassFacts, name: str, index: int, output: Value) -> str:
        return f"{facts.name}.backward ignores {name}: output {index + 1} of forward requires grad, but a loss on it trains nothing"


def marked(facts: ClassFacts, output: Value) -> bool:
    """Return whether an output may be among those marked as non-differentiable."""
    for mark in facts.marks:
        if mark.name == "mark_non_differentiable":
            ids = {(r.root, r.key) for v in mark.values for r in v.all_refs() if r.how in ("is", "view", "maybe")}
            if not mark.exact or any(v.kind == "unknown" for v in mark.values) or ids & {(r.root, r.key) for r in output.refs if r.how == "is"}:
                return True
    return False
