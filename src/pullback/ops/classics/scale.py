"""A tensor times a number."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import elementwise


def scale_reference(x: Tensor, factor: float) -> Tensor:
    """The same in plain torch."""
    return x * factor


@op(reference=scale_reference, static=("factor",), linear=("x",))
def scale(x: Tensor, factor: float) -> Tensor:
    """Return ``factor · x`` for a Python number `factor`.

    Math:
        y = factor x, so dx = factor dy.

    Args:
        x: Floating tensor, any shape.
        factor: A number.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        No tensor.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `factor` that is no number.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.ones(2, requires_grad=True)
        >>> pb.ops.scale(x, 3.0).sum().backward()
        >>> x.grad
        tensor([3., 3.])

    References:
        Griewank and Walther, Evaluating Derivatives, 2nd edition, 2008, chapter 3, doi:10.1137/1.9780898717761.
    """
    arguments.floating("scale", x=x)
    arguments.number("scale", "factor", factor)
    return x * elementwise.factor(factor, x)


@scale.vjp("x")
def _(dy: Tensor, factor: float) -> Tensor:
    return dy * elementwise.factor(factor, dy)


@scale.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 3.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, 2.5)
    yield sample(x, -3)
