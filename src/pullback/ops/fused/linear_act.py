"""Linear layer and an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from . import _products as products
from ._eager import silu_backward

_aten = torch.ops.aten
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
}
_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda dy, y: _aten.threshold_backward(dy, y, 0),
    "sigmoid": lambda dy, y: _aten.sigmoid_backward(dy, y),
    "tanh": lambda dy, y: _aten.tanh_backward(dy, y),
    "silu": silu_backward,
    "gelu": lambda dy, z: _aten.gelu_backward(dy, z),
    "gelu_tanh": lambda dy, z: _aten.gelu_backward(dy, z, approximate="tanh"),
}
_OF_OUTPUT = ("relu", "sigmoid", "tanh")
"""Activations whose derivative is a function of their output, which is then kept in z's place."""


def linear_act_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "relu") -> Tensor:
    """A linear layer and an activation in plain torch."""
    z = x @ weight.t() if bias is None else x @ weight.t() + bias
    return _ACTIVATIONS[activation](z)


@op(reference=linear_act_reference)
def linear_act(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "relu") -> Tensor:
    """Return ``activation(x weightᵀ + bias)``.

    Math:
        y = a(z) with z = x weightᵀ + bias. The derivative a'(z) is a function of y for relu (y > 0), sigmoid (y (1 - y)) and tanh (1 - y²), and of z
        for the others. From dz = dy a'(z), computed once: dx = dz weight, dweight = dzᵀ x, dbias = dz summed over rows.

    Args:
        x: Floating tensor ``[..., in]``.
        weight: ``[out, in]``, x's dtype.
        bias: ``[out]``, x's dtype, or None.
        activation: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"silu"``, ``"gelu"`` or ``"gelu_tanh"``.

    Returns:
        ``[..., out]``, x's dtype; under autocast the autocast dtype.

    Saves:
        `x` where weight needs a gradient, `weight` where x does, and y (which the next layer keeps anyway) for relu, sigmoid and tanh, z for the
        others.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Float32 on
        CPU takes the faster of torch's two matrix products, see ``pb.ops.probe_products``.

    Raises:
        TypeError: for an argument that is no floating tensor, or dtypes that differ outside of autocast.
        ValueError: for shapes that do not fit, or an unknown activation.

    Example:
        >>> import torch, pullback as pb
        >>> x, weight = torch.tensor([[1.0, -2.0]]), torch.eye(2)
        >>> pb.ops.linear_act(x, weight, bias=torch.tensor([0.5, 0.5]))
        tensor([[1.5000, 0.0000]])

    References:
        Griewank and Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, section 3.2: which values a reverse sweep needs.
    """
    products.check("linear_act", x, weight, bias)
    arguments.choice("linear_act", "activation", activation, *_ACTIVATIONS)
    z = products.linear(x, weight, bias)
    y = _ACTIVATIONS[activation](z)
    return keep(y, z=z, state=y if activation in _OF_OUTPUT else z)


@linear_act.vjp("z")
def _(dy: Tensor, state: Tensor, activation: str) -> Tensor:
    return _SLOPES[activation](dy, state)


@linear_act.vjp("z", of="state")
def _(dstate: Tensor, state: Tensor, activation: str) -> Tensor:
    return _SLOPES[activation](dstate, state) if activation in _OF_OUTPUT else dstate


@linear_act.vjp("x", of="z")
def _(dz: Tensor, weight: Tensor) -> Tensor:
    return products.grad_x(dz, weight)


@linear_act.vjp("weight", of="z")
def _(dz: Tensor, x: Tensor) -> Tensor:
    return products.grad_weight(dz, x)


@linear_act.vjp("bias", of="z")
def _(dz: Tensor) -> Tensor:
    return products.grad_bias(dz)


@linear_act.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 5), (4, 5), (4,)))
    for activation in _ACTIVATIONS:
        yield sample(x, weight, bias, activation)
    yield sample(x.reshape(1, 3, 5), weight, activation="tanh")
