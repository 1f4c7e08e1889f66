"""PB202."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import CtxWrite, Save
from ..facts import ClassFacts
from ..rule import Hit, Rule
from .pb201_tensor_on_ctx import is_output


class OutputOnCtx(Rule):
    """An output, or a view of one, is kept on ctx: a reference cycle.

    Why it matters:
        output → grad_fn → ctx → output is never freed by reference counting: memory grows until the garbage collector
        runs, for a saved view not even then.

    How it is measured:
        The value of a ctx attribute is a tensor that forward returns, or save_for_backward is given a view of one.

    Instead:
        `ctx.save_for_backward(output)`: the engine breaks the cycle for outputs themselves.

    References:
        pytorch#25340, pytorch#94990
    """

    code = "PB202"
    name = "output-on-ctx"
    severity = "warning"
    bad = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y
"""
    good = """
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        outputs = facts.returned_outputs()
        seen: set[str] = set()
        for method in facts.own(*facts.before):
            for event in method.of(CtxWrite):
                if event.attribute not in seen and not event.via and any(v.is_tensor and is_output(v, outputs) for v in event.value.flat()):
                    seen.add(event.attribute)
                    yield Hit(
                        event.site,
                        f"{facts.name}.{method.name} keeps its output as `{method.ctx}.{event.attribute}`: output, grad_fn and ctx hold each other",
                        fix="save the output with save_for_backward",
                    )
            for event in method.of(Save):
                for value in event.values or ():
                    only_view = not any(r.root == "local" and r.how == "is" for r in value.refs)
                    if only_view and is_output(value, outputs):
                        yield Hit(
                            event.site,
                            f"{facts.name}.{method.name} saves a view of its output: output, grad_fn and the saved view hold each other",
                            fix="save the output itself and take the view in backward",
                        )
