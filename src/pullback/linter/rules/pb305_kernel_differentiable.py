"""PB305."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts, Method
from ..rule import Hit, Rule, insert_after


class KernelDifferentiable(Rule):
    """backward runs a kernel that autograd cannot see, without once_differentiable.

    Why it matters:
        With `create_graph=True` the second derivative is silently wrong or zero instead of an error.

    How it is measured:
        Launches of the form `kernel[grid](…)`, data_ptr and numpy on gradients, in backward or a helper; a backward
        that applies another Function is left alone.

    Instead:
        `@once_differentiable` below `@staticmethod`.
    """

    code = "PB305"
    name = "kernel-differentiable"
    severity = "note"
    safe = False
    bad = """
class Fft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(transform(x.numpy()))

    @staticmethod
    def backward(ctx, grad_output):
        return torch.from_numpy(adjoint(grad_output.numpy()))
"""
    good = """
class Fft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(transform(x.numpy()))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return torch.from_numpy(adjoint(grad_output.numpy()))
"""
    fixed = good

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            if facts.once_differentiable or any(e.name.endswith(".apply") or e.name == "apply" for e in method.of(Call)):
                continue
            if any("enable_grad" in c for e in method.of(Call) for c in e.contexts):
                continue
            kernel = next((e for e in method.of(Call) if is_kernel(e)), None)
            if kernel is not None:
                yield Hit(
                    method.node,
                    f"{facts.name}.backward runs a kernel (`{facts.text(kernel.site)}`) and does not say that it cannot be differentiated again",
                    fix="@once_differentiable below @staticmethod",
                    edits=_decorate(facts, method),
                )


def is_kernel(event: Call) -> bool:
    """Whether a call hands gradients to code that autograd does not see."""
    if event.kernel and event.receiver is None and "." not in event.name:
        return any(r.root in ("grad", "saved") for a in event.arguments for r in a.refs)
    return event.name in ("data_ptr", "numpy") and event.receiver is not None and event.receiver.has("grad", "is", "view", "maybe")


def _decorate(facts: ClassFacts, method: Method):
    if not method.node.decorator_list:
        return ()
    last = method.node.decorator_list[-1]
    spelling = (
        "once_differentiable"
        if "once_differentiable" in facts.source.imports
        else "torch.autograd.function.once_differentiable"
        if "torch" in facts.source.imports
        else ""
    )
    if not spelling:
        return ()
    newline = "\r\n" if facts.source.lines[last.lineno - 1].endswith(b"\r\n") else "\n"
    return insert_after(facts, last, f"{newline}{' ' * method.node.col_offset}@{spelling}", safe=False)
