"""PB213."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts import ClassFacts
from ..rule import Hit, Rule
from .pb105_saved_requires_grad import _marked, inner_backward


class BackwardInBackward(Rule):
    """backward calls `.backward()`.

    Why it matters:
        It writes into the `.grad` of every leaf it reaches, parameters included: `torch.autograd.grad` on the outside
        adds to them as a side effect, and torch.func is not possible.

    How it is measured:
        Calls of `Tensor.backward` or torch.autograd.backward in backward or a helper of it.

    Instead:
        `torch.autograd.grad(outputs, inputs, grad_output)`, unless filling the parameters' `.grad` is the purpose
        (checkpointing with captured parameters): say so with a suppression.
    """

    code = "PB213"
    name = "backward-in-backward"
    severity = "warning"
    bad = """
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, x):
        ctx.f = f
        ctx.save_for_backward(x)
        return f(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.f(x)
        y.backward(grad_output)
        return None, x.grad
"""
    good = """
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, x):
        ctx.f = f
        ctx.save_for_backward(x)
        return f(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.f(x)
        return None, *torch.autograd.grad(y, x, grad_output)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            calls = inner_backward(method)
            if calls and not any(True for _ in _marked(method)):
                yield Hit(
                    calls[0].site,
                    f"{facts.name}.backward calls `.backward()`, which writes into the `.grad` of every leaf it reaches",
                    fix="torch.autograd.grad(outputs, inputs, grad_output)",
                )
