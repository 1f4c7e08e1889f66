"""PB120."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Test, Use
from ..facts import ClassFacts
from ..rule import Hit, Rule


class UnhandledUndefined(Rule):
    """set_materialize_grads(False) is on, and backward computes with a gradient that may be None.

    Why it matters:
        The gradient of an output that takes no part in the loss arrives as None; backward raises.

    How it is measured:
        With several outputs and materialisation off, a gradient argument that is an operand and is never tested.

    Instead:
        Test each gradient for None, or leave materialisation on.
    """

    code = "PB120"
    name = "unhandled-undefined"
    severity = "error"
    bad = """
class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        (x,) = ctx.saved_tensors
        return grad_sin * x.cos() - grad_cos * x.sin()
"""
    good = """
class SinCos(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        (x,) = ctx.saved_tensors
        total = torch.zeros_like(x)
        if grad_sin is not None:
            total = total + grad_sin * x.cos()
        if grad_cos is not None:
            total = total - grad_cos * x.sin()
        return total
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        off = [m for m in facts.marks if m.name == "set_materialize_grads" and m.off]
        backward = facts.backward
        if not off or backward is None or not facts.own(backward) or len(backward.positional) < 2:
            return
        tested = {r.key for e in backward.of(Test) for v in e.value.flat() for r in v.refs if r.root == "grad"}
        tested |= {"*" for e in backward.of(Test) for v in e.value.flat() if v.sequence and v.sequence[0] == "grad"}
        for index, argument in enumerate(backward.positional):
            if index in tested or "*" in tested:
                continue
            use = next((e for e in backward.of(Use) if e.how in ("operand", "meta") and not e.via and e.value.shares("grad", "is") == [index]), None)
            if use is not None and not any(g.flags or _mentions(facts, g.test, argument.arg) for g in use.guards):
                yield Hit(
                    use.site,
                    f"{facts.name}.backward computes with `{argument.arg}`, which is None when its output takes no part in the loss: "
                    "set_materialize_grads is off",
                    fix=f"test `{argument.arg} is not None` first",
                )


def _mentions(facts: ClassFacts, test: object, name: str) -> bool:
    return name in facts.source.text(test)  # type: ignore[arg-type]
