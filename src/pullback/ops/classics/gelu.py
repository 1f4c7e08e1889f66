"""GELU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import elementwise

_gelu_backward = torch.ops.aten.gelu_backward.default


def gelu_reference(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """GELU in plain torch."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * 0.5 * torch.erfc(-x * math.sqrt(0.5))


@op(reference=gelu_reference, static=("approximate",), elementwise=True)
def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Return ``x · Phi(x)`` with the normal distribution function Phi, or its approximation by tanh.

    Math:
        y = x Phi(x), so dy/dx = Phi(x) + x phi(x) with the normal density phi.
        The approximation is Phi(x) = (1 + tanh u) / 2 = sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x³): one exp, where tanh takes more. With
        s = sigmoid(2u), dy/dx = s + 2x s (1 - s) du/dx and du/dx = sqrt(2/pi) (1 + 0.134145 x²).

    Args:
        x: Floating tensor, any shape.
        approximate: ``"none"`` or ``"tanh"``.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; second derivatives, torch.func, forward mode, torch.compile, autocast. With C kernels the
        approximation takes less than a third of torch's own time from 1e6 elements on.

    Raises:
        TypeError: for an `x` that is no floating tensor.
        ValueError: for another `approximate`.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        >>> pb.ops.gelu(x, "tanh")
        tensor([-0.1588,  0.0000,  1.9546], grad_fn=<geluBackward>)

    References:
        Hendrycks and Gimpel, Gaussian error linear units, 2016, arXiv:1606.08415.
    """
    arguments.floating("gelu", x=x)
    arguments.choice("gelu", "approximate", approximate, "none", "tanh")
    fast = elementwise.flat("gelu_tanh_forward", x) if approximate == "tanh" else None
    return F.gelu(x, approximate=approximate) if fast is None else fast


@gelu.vjp("x")
def _(dy: Tensor, x: Tensor, approximate: str) -> Tensor:
    fast = elementwise.flat("gelu_tanh_backward", dy, x) if approximate == "tanh" else None
    return _gelu_backward(dy, x, approximate=approximate) if fast is None else fast


@gelu.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, "tanh")
    yield sample(x)
