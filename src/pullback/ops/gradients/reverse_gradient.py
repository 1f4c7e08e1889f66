"""Gradient reversal."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def reverse_gradient_reference(x: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """Gradient reversal in plain torch: a detour whose value is `x`."""
    return x.detach() - strength * (x - x.detach())


@op(reference=reverse_gradient_reference, static=("strength",), elementwise=True)
def reverse_gradient(x: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """Return `x` itself, with a gradient that is multiplied by ``-strength``: what lies before is trained against what lies behind.

    Math:
        y = x. Declared instead of its derivative: dx = -strength · dy.

    Args:
        x: Floating tensor, any shape.
        strength: A number, or a tensor with one element; it is not differentiated.

    Returns:
        A view of `x`.

    Saves:
        `strength` where it is a tensor; else nothing.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order of the declared gradient, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `strength` that is no number.
        ValueError: for a `strength` of more than one element.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.ones(2, requires_grad=True)
        >>> pb.ops.reverse_gradient(x, 0.5).sum().backward()
        >>> x.grad
        tensor([-0.5000, -0.5000])

    References:
        Ganin and Lempitsky, Unsupervised domain adaptation by backpropagation, 2015, arXiv:1409.7495, section 3.1.
    """
    arguments.floating("reverse_gradient", x=x)
    arguments.scalar("reverse_gradient", "strength", strength)
    return x.view_as(x)


@reverse_gradient.surrogate
def _(x: Tensor, strength: float | Tensor) -> Tensor:
    return -strength * x


@reverse_gradient.vjp("x")
def _(dy: Tensor, strength: float | Tensor) -> Tensor:
    return -strength * dy


@reverse_gradient.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, 0.25)
