"""PB105."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import AttributeWrite, Call
from ..facts import ClassFacts, Method
from ..rule import Hit, Rule


class SavedRequiresGrad(Rule):
    """backward sets requires_grad on a saved tensor and then calls `.backward()`.

    Why it matters:
        The saved tensor is the same object each time: its `.grad` is written by the inner backward and added to on
        the next one, so the second gradient is doubled.

    How it is measured:
        `requires_grad = True` or `requires_grad_()` on an unpacked saved tensor that was not detached, and a call of
        `.backward()` in the same method.

    Instead:
        `x = x.detach().requires_grad_()` under `torch.enable_grad()`, then `torch.autograd.grad(y, x, grad_output)`.
    """

    code = "PB105"
    name = "saved-requires-grad"
    severity = "error"
    bad = """
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        x.requires_grad_()
        with torch.enable_grad():
            y = x.sin()
        y.backward(grad_output)
        return x.grad
"""
    good = """
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = x.sin()
        return torch.autograd.grad(y, x, grad_output)[0]
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            if inner_backward(method):
                for node in _marked(method):
                    yield Hit(
                        node,
                        f"{facts.name}.backward sets requires_grad on a saved tensor and calls `.backward()`: a second backward adds to "
                        "the first one's `.grad`",
                        fix="x = x.detach().requires_grad_(), then torch.autograd.grad",
                    )
                    break


def inner_backward(method: Method) -> list[Call]:
    """Return the calls of `.backward()` or torch.autograd.backward in a method."""
    return [
        e
        for e in method.of(Call)
        if e.name in ("torch.autograd.backward", "backward")
        and (e.receiver is None or e.receiver.kind not in ("class", "ctx"))
        and not _is_function_backward(e)
    ]


def _is_function_backward(event: Call) -> bool:
    return any(a.kind == "ctx" for a in event.arguments)


def _marked(method: Method) -> Iterator[ast.AST]:
    for event in method.record.events:
        if (isinstance(event, AttributeWrite) and event.attribute == "requires_grad" and event.value.has("saved", "is")) or (
            isinstance(event, Call) and event.name == "requires_grad_" and event.receiver is not None and event.receiver.has("saved", "is")
        ):
            yield event.site
