"""PB309."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule


class ItemInBackward(Rule):
    """backward reads a tensor's value into Python with `.item()` or `.tolist()`.

    Why it matters:
        On a GPU it waits for everything queued so far; it breaks torch.compile, vmap and double backward.

    How it is measured:
        Calls of item and tolist on gradients, saved tensors or results computed from them.

    Instead:
        Compute with the 0-dim tensor.
    """

    code = "PB309"
    name = "item-in-backward"
    severity = "note"
    bad = """
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean()

    @staticmethod
    def backward(ctx, grad_output):
        return torch.full(ctx.shape, grad_output.item() / ctx.shape.numel(), device=grad_output.device, dtype=grad_output.dtype)
"""
    good = """
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean()

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output / ctx.shape.numel()).expand(ctx.shape)
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.backward):
            for event in method.of(Call):
                tensor = event.receiver is not None and event.receiver.is_tensor and (event.receiver.has("grad") or event.receiver.has("saved"))
                if event.name in ("item", "tolist") and tensor and not event.via:
                    yield Hit(
                        event.node,
                        f"`{facts.text(event.node)}` in {facts.name}.backward waits for the device and breaks torch.compile",
                        fix="compute with the tensor itself",
                    )
                    break
