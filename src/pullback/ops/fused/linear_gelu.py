"""Linear layer and GELU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ..kernels import elementwise
from . import _products as products


def linear_gelu_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none") -> Tensor:
    """A linear layer and GELU in plain torch."""
    z = F.linear(x, weight, bias)
    if approximate == "tanh":
        return 0.5 * z * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)))
    return 0.5 * z * (1 + torch.erf(z * 0.5**0.5))


@op(reference=linear_gelu_reference)
def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor | None = None, approximate: str = "none") -> Tensor:
    """Return ``gelu(x weightᵀ + bias)``.

    Math:
        y = gelu(z) with z = x weightᵀ + bias. From dz = dy gelu'(z), computed once: dx = dz weight, dweight = dzᵀ x, dbias = dz summed over rows.

    Args:
        x: Floating tensor ``[..., in]``.
        weight: ``[out, in]``, x's dtype.
        bias: ``[out]``, x's dtype, or None.
        approximate: ``"none"`` for the exact GELU, ``"tanh"`` for its approximation.

    Returns:
        ``[..., out]``, x's dtype; under autocast the autocast dtype.

    Saves:
        `x` where weight needs a gradient, `weight` where x does, and z: one element for each of y's.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Float32 on
        CPU takes the faster of torch's two matrix products, see ``pb.ops.probe_products``.

    Raises:
        TypeError: for an argument that is no floating tensor, or dtypes that differ outside of autocast.
        ValueError: for shapes that do not fit, or another `approximate`.

    Example:
        >>> import torch, pullback as pb
        >>> x, weight = torch.tensor([[1.0, -2.0]]), torch.eye(2)
        >>> pb.ops.linear_gelu(x, weight)
        tensor([[ 0.8413, -0.0455]])

    References:
        Hendrycks and Gimpel, Gaussian error linear units, 2016, arXiv:1606.08415.
    """
    products.check("linear_gelu", x, weight, bias)
    arguments.choice("linear_gelu", "approximate", approximate, "none", "tanh")
    z = products.linear(x, weight, bias)
    fast = elementwise.flat("gelu_tanh_forward", z) if approximate == "tanh" else None
    return keep(F.gelu(z, approximate=approximate) if fast is None else fast, z=z)


@linear_gelu.vjp("z")
def _(dy: Tensor, z: Tensor, approximate: str) -> Tensor:
    fast = elementwise.flat("gelu_tanh_backward", dy, z) if approximate == "tanh" else None
    return torch.ops.aten.gelu_backward(dy, z, approximate=approximate) if fast is None else fast


@linear_gelu.vjp("x", of="z")
def _(dz: Tensor, weight: Tensor) -> Tensor:
    return products.grad_x(dz, weight)


@linear_gelu.vjp("weight", of="z")
def _(dz: Tensor, x: Tensor) -> Tensor:
    return products.grad_weight(dz, x)


@linear_gelu.vjp("bias", of="z")
def _(dz: Tensor) -> Tensor:
    return products.grad_bias(dz)


@linear_gelu.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 5), (4, 5), (4,)))
    yield sample(x, weight, bias)
    yield sample(x, weight, bias, approximate="tanh")
    yield sample(x.reshape(1, 3, 5), weight)
