"""PB404."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .. import torch_names as names
from ..events import Call
from ..facts import ClassFacts
from ..rule import Hit, Rule


class FactoryWithoutDevice(Rule):
    """A tensor is made without device or dtype, on a hard-coded device, or a mask is made with `.float()`.

    Why it matters:
        It lands on the CPU, or in float32, whatever the inputs are: an error on a GPU, a silent promotion in half precision.

    How it is measured:
        `torch.zeros(n)` and its like without `device=`, `"cuda"` as a device, `.cuda()`, and `.float()` on a comparison, in forward or backward.

    Instead:
        `x.new_zeros(n)`, `torch.zeros_like(x)`, `device=x.device, dtype=x.dtype`, `.to(x.dtype)`.

    Limits:
        Off by default: right on one device.
    """

    code = "PB404"
    name = "factory-without-device"
    severity = "warning"
    default = False
    bad = """
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        return x * mask + torch.zeros(x.shape)

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask
"""
    good = """
class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask + torch.zeros_like(x)

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask
"""

    def find(self, facts: ClassFacts) -> Iterator[Hit]:
        for method in facts.own(facts.forward, facts.backward):
            for event in method.of(Call):
                if event.via or not isinstance(event.node, ast.Call):
                    continue
                reason = self._reason(event, event.node)
                if reason:
                    yield Hit(
                        event.node, f"{facts.name}.{method.name}: `{facts.text(event.node)}` {reason}", fix="take device and dtype from an input"
                    )

    def _reason(self, event: Call, node: ast.Call) -> str:
        keywords = {k.arg: k.value for k in node.keywords}
        head, _, last = event.name.rpartition(".")
        if head == "torch" and last in names.DEVICE_FACTORIES and "device" not in keywords and None not in keywords:
            return "is made on the default device"
        device = keywords.get("device") or (node.args[0] if event.name == "to" and node.args else None)
        if isinstance(device, ast.Constant) and isinstance(device.value, str) and device.value.startswith("cuda"):
            return "hard-codes the device"
        if event.name == "float" and event.receiver is not None and event.receiver.dtype == "int" and isinstance(node.func, ast.Attribute):
            return "makes float32 whatever the input's dtype is"
        return ""
