"""PB402."""

from __future__ import annotations

from collections.abc import Iterator

from .. import torch_names as names
from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule


class MatmulWithoutAutocast(Rule):
    """backward multiplies matrices, and neither custom_fwd nor custom_bwd nor a cast handles autocast.

    Why it matters:
        Under AMP forward works, and backward meets a bfloat16 activation and a float32 weight with autocast off: a dtype error.

    How it is measured:
        Matrix products of saved tensors in backward; no custom_fwd or custom_bwd, no `.to(…)`, no mention of autocast in the class.

    Instead:
        `@torch.amp.custom_fwd(device_type=…)` on forward and `custom_bwd` on backward.

    Limits:
        Off by default: many Functions never run under AMP.
    """

    code = "PB402"
    name = "matmul-without-autocast"
    severity = "warning"
    default = False
    bad = """
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
    good = """
class MatMul(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = grad_output @ w.t() if ctx.needs_input_grad[0] else None
        gw = x.t() @ grad_output if ctx.needs_input_grad[1] else None
        return gx, gw
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            start, end = facts.source.span(facts.node)
            text = facts.source.data[start:end]
            if any(word in text for word in (b"custom_fwd", b"custom_bwd", b"autocast", b".to(", b".type_as(", b".float()", b"amp_")):
                continue
            for event in method.of(Call):
                values = (*event.arguments, *((event.receiver,) if event.receiver else ()))
                if event.name.rsplit(".", 1)[-1] in names.MATMULS and any(v.has("saved") for v in values) and any(v.has("grad") for v in values):
                    yield Hit(
                        event.site,
                        f"{facts.name}.backward multiplies grad_output with a saved tensor; under autocast their dtypes differ",
                        fix="torch.amp.custom_fwd and custom_bwd",
                    )
                    break
