"""ReLU whose closed half lets a part of the gradient through."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments

_leaky_relu_backward = torch.ops.aten.leaky_relu_backward.default


def scaled_relu_reference(x: Tensor, coefficient: float | Tensor) -> Tensor:
    """The same in plain torch, by a detour: the value of one function with the gradient of another."""
    leaky = torch.where(x > 0, x, coefficient * x)
    return leaky - leaky.detach() + torch.relu(x).detach()


@op(reference=scaled_relu_reference, static=("coefficient",), elementwise=True)
def scaled_relu(x: Tensor, coefficient: float | Tensor) -> Tensor:
    """Return ``max(x, 0)``, with the gradient of a leaky ReLU: units that are off keep learning.

    Math:
        y = max(x, 0). Declared instead of its derivative: dx = dy where y > 0, else coefficient · dy, the gradient of max(x, 0) + coefficient
        min(x, 0).

    Args:
        x: Floating tensor, any shape.
        coefficient: Factor of the gradient where `x` is not positive: a number, or a tensor that broadcasts to `x`. It is not differentiated.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        The output, whose sign tells that of `x`: nothing where what comes next keeps it too. `coefficient` where it is a tensor.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order of the declared gradient, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `coefficient` that is neither a number nor one.
        ValueError: for a `coefficient` that does not broadcast to `x`.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
        >>> pb.ops.scaled_relu(x, 0.1).sum().backward()
        >>> x.grad
        tensor([0.1000, 1.0000])

    References:
        Maas, Hannun and Ng, Rectifier nonlinearities improve neural network acoustic models, ICML 2013 (the gradient used here).
    """
    arguments.floating("scaled_relu", x=x)
    if isinstance(coefficient, Tensor):
        arguments.floating("scaled_relu", coefficient=coefficient)
        arguments.broadcasts_to("scaled_relu", "coefficient", coefficient, x)
    else:
        arguments.number("scaled_relu", "coefficient", coefficient, kind="a number or a floating tensor")
    return torch.relu(x)


@scaled_relu.surrogate
def _(x: Tensor, coefficient: float | Tensor) -> Tensor:
    return torch.where(x > 0, x, coefficient * x)


@scaled_relu.vjp("x")
def _(dy: Tensor, out: Tensor, coefficient: float | Tensor) -> Tensor:
    if not isinstance(coefficient, Tensor) and coefficient >= 0:
        return _leaky_relu_backward(dy, out, coefficient, True)
    return torch.where(out > 0, dy, (coefficient * dy).to(dy.dtype))


@scaled_relu.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, 0.1)
    yield sample(x, torch.tensor([0.1, -0.5, 0.25, 2.0], dtype=torch.float64))
