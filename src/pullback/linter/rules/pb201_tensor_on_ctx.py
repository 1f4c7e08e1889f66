"""PB201."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import CtxWrite
from ..facts import ClassFacts
from ..rule import Hit, Rule
from ..values import Value


class TensorOnCtx(Rule):
    """A tensor is kept as an attribute of ctx instead of being saved.

    Why it matters:
        Attributes bypass the version check (a later in-place change gives wrong gradients silently), saved-tensor
        hooks (checkpointing, offloading) and the freeing of memory after backward.

    How it is measured:
        The assigned value is a tensor by evidence: an input that gets a gradient, or the result of a tensor operation
        on one. Integer and bool tensors and unknown values are left alone.

    Instead:
        `ctx.save_for_backward(x)`; in the setup_context style intermediates must be outputs of forward.
    """

    code = "PB201"
    name = "tensor-on-ctx"
    severity = "warning"
    bad = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mask = x.relu()
        ctx.x = x.detach()
        return ctx.mask.exp() + x.sum()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.mask.exp() * (ctx.x > 0) + grad_output.sum()
"""
    good = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept = x.relu()
        ctx.save_for_backward(kept, x)
        return kept.exp() + x.sum()

    @staticmethod
    def backward(ctx, grad_output):
        kept, x = ctx.saved_tensors
        return grad_output * kept.exp() * (x > 0) + grad_output.sum()
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        outputs = facts.returned_outputs()
        seen: set[str] = set()
        for method in facts.own(*facts.before):
            for event in method.of(CtxWrite):
                if event.attribute in seen or event.via or is_output(event.value, outputs) or not _is_residual(facts, event.value):
                    continue
                seen.add(event.attribute)
                yield Hit(
                    event.site,
                    f"{facts.name}.{method.name} keeps a tensor as `{method.ctx}.{event.attribute}`: no version check, no "
                    "saved-tensor hooks, not freed after backward",
                    fix=f"save it with {method.ctx}.save_for_backward",
                )


def _is_residual(facts: ClassFacts, value: Value) -> bool:
    """Whether a value is a tensor that a gradient depends on: a differentiated input, or computed from one."""
    if value.items:
        return any(_is_residual(facts, v) for v in value.items)
    if not value.is_tensor or value.dtype == "int" or value.container == "dict":
        return False
    inputs = {r.key for r in value.refs if r.root == "input"}
    return any(isinstance(i, int) and facts.gets_gradient(i) for i in inputs) or (value.dtype == "float" and value.has("local", "is"))


def is_output(value: Value, outputs: list[Value]) -> bool:
    """Return whether a kept value is, or is a view of, a tensor that forward returns as made."""
    kept = {r.key for r in value.refs if r.root == "local" and r.how in ("is", "view")}
    return any(r.root == "local" and r.how == "is" and r.key in kept for out in outputs for v in out.flat() for r in v.refs)
