"""PB111."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Returned
from ..facts import ClassFacts
from ..rule import Hit, Rule


class BackwardParameters(Rule):
    """backward does not take as many gradients as forward has outputs.

    Why it matters:
        The engine passes one gradient for each output; backward raises a TypeError on that path.

    How it is measured:
        The number of outputs of every return of forward is compared with backward's parameters.

    Instead:
        One parameter for each output, or `*grads`.
    """

    code = "PB111"
    name = "backward-parameters"
    severity = "error"
    bad = """
class MeanAndMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[-1]
        return x.mean(-1), x.sum(-1)

    @staticmethod
    def backward(ctx, grad_mean):
        return grad_mean.unsqueeze(-1).expand(-1, ctx.n) / ctx.n
"""
    good = """
class MeanAndMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[-1]
        return x.mean(-1), x.sum(-1)

    @staticmethod
    def backward(ctx, grad_mean, grad_sum):
        return (grad_mean / ctx.n + grad_sum).unsqueeze(-1).expand(-1, ctx.n)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        backward = facts.backward
        if backward is None or not facts.own(backward) or not facts.gradients or facts.forward is None:
            return
        most = None if backward.vararg else len(backward.positional)
        counts = {len(f.items) for f in facts.outputs if f.items is not None and f.value.container != "list" and not _for_inference(facts, f)}
        wrong = sorted(n for n in counts if n < backward.required or (most is not None and n > most))
        if wrong:
            takes = (
                f"{backward.required}"
                if most == backward.required
                else f"{backward.required} or more"
                if most is None
                else f"{backward.required} to {most}"
            )
            outputs = " or ".join(str(n) for n in sorted(counts))
            yield Hit(
                backward.node,
                f"{facts.name}.backward takes {takes} gradient{'s' if takes != '1' else ''}, but forward returns {outputs} "
                f"output{'s' if outputs != '1' else ''}",
                fix="one parameter after ctx for each output of forward",
            )


def _for_inference(facts: ClassFacts, form: Returned) -> bool:
    """Whether a return is only reached where no gradient is wanted."""
    texts = [facts.source.text(g.test) for g in form.guards] if form.guards else []
    return any("inference" in t or "training" in t or "grad_enabled" in t for t in texts)
