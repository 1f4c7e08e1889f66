"""PB401."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule


class RawGradPointer(Rule):
    """grad_output goes into a kernel without contiguous() and without its strides.

    Why it matters:
        A kernel that reads rows as if they were packed gives wrong gradients as soon as grad_output is a view (after `torch.cat`, `.t()`, `.sum()`).

    How it is measured:
        A gradient argument, as it came, in a launch `kernel[grid](…)`, a call into an extension module, or
        `data_ptr()`, where neither its strides nor `contiguous` appear.

    Instead:
        `grad_output = grad_output.contiguous()` first, or pass its strides.

    Limits:
        Off by default: the kernel may make it contiguous itself. `pullback check` decides (PB604).
    """

    code = "PB401"
    name = "raw-grad-pointer"
    severity = "warning"
    default = False
    bad = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        swish_backward[(x.numel(),)](grad_output, x, grad_x)
        return grad_x
"""
    good = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_output, grad_x = grad_output.contiguous(), torch.empty_like(x)
        swish_backward[(x.numel(),)](grad_output, x, grad_x)
        return grad_x
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            start, end = facts.source.span(method.node)
            text = facts.source.data[start:end]
            if b"stride(" in text or b"is_contiguous" in text or set(method.decorators) - {"staticmethod", "once_differentiable", "custom_bwd"}:
                continue
            for event in method.of(Call):
                values = event.arguments if event.kernel else (event.receiver,) if event.name == "data_ptr" and event.receiver else ()
                if any(v.shares("grad", "is", "view") and not v.shares("grad", "maybe") for v in values):
                    yield Hit(
                        event.site,
                        f"{facts.name}.backward hands grad_output to a kernel as it came, whatever its strides",
                        fix="grad_output = grad_output.contiguous() first",
                    )
                    break
