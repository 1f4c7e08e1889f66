"""PB106."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Save
from ..facts import ClassFacts
from ..rule import Hit, Rule, named


class SavingGuardedByOne(Rule):
    """Saving depends on whether one input needs a gradient, while backward computes gradients for others too.

    Why it matters:
        With that input frozen nothing is saved, and backward fails or skips the gradients of the inputs that do need them.

    How it is measured:
        save_for_backward stands under a test of one input's requires_grad (or needs_input_grad), nothing is saved
        otherwise, and backward returns a gradient for another input. What forward asserts, or refuses by raising, leaves no other way.

    Instead:
        Save unconditionally (nothing is kept when no gradient is needed), or test `any(ctx.needs_input_grad)`.
    """

    code = "PB106"
    name = "saving-guarded-by-one"
    severity = "error"
    bad = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if x.requires_grad:
            ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output * w, grad_output * x
"""
    good = """
class Mul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output * w, grad_output * x
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        if not facts.whole or facts.escapes:
            return
        for save in facts.saves:
            guard = next((g for g in save.guards if g.positive and g.mode == "one" and not g.enforced), None)
            if guard is None or _saved_elsewhere(facts.saves, save):
                continue
            (flag,) = guard.flags
            others = [p.name for p in facts.inputs if p.index != flag and facts.gets_gradient(p.index)]
            if others and isinstance(flag, int):
                yield Hit(
                    save.site,
                    f"{facts.name}.forward saves only if `{facts.input_name(flag)}` needs a gradient, but backward also computes the "
                    f"gradient of {named(others)}",
                    fix="save unconditionally, or test any(ctx.needs_input_grad)",
                )


def _saved_elsewhere(saves: list[Save], save: Save) -> bool:
    return any(other is not save for other in saves)
