"""Gradients without NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu


def zero_nan_gradient_reference(x: Tensor, infinite: bool = True) -> Tensor:
    """The same in plain torch, by a hook."""
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda dy: torch.where(dy.isfinite() if infinite else ~dy.isnan(), dy, 0.0))
    return y


@op(reference=zero_nan_gradient_reference, static=("infinite",))
def zero_nan_gradient(x: Tensor, infinite: bool = True) -> Tensor:
    """Return `x` itself, with a gradient in which NaN, and infinite values too, are zero.

    Math:
        y = x. Declared instead of its derivative: dx = dy where dy is finite, else 0; not linear in dy.

    Args:
        x: Floating tensor, any shape.
        infinite: Whether infinite values are zeroed as well as NaN.

    Returns:
        A view of `x`.

    Saves:
        Nothing.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; second derivatives, torch.func, forward mode (that of y = x), torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or an `infinite` that is no bool.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
        >>> (0 * pb.ops.zero_nan_gradient(x).sqrt()).sum().backward()
        >>> x.grad
        tensor([0., 0.])

    References:
        The derivative of ``where(x > 0, f(x), 0)``, which is NaN where f'(x) is infinite, pytorch/pytorch#23395, is the usual reason for it.
    """
    arguments.floating("zero_nan_gradient", x=x)
    arguments.flag("zero_nan_gradient", "infinite", infinite)
    return x.view_as(x)


@zero_nan_gradient.vjp("x", exact=False, linear=False, reason="NaN and infinite values of the gradient are zeroed")
def _(dy: Tensor, infinite: bool) -> Tensor:
    return _zeroed(dy, infinite)


@zero_nan_gradient.jvp
def _(tangents):
    return tangents.x.view_as(tangents.x)


@zero_nan_gradient.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, infinite=False)


def _zeroed(dy: Tensor, infinite: bool) -> Tensor:
    if cpu.plain(dy):
        kept = 0.0 if infinite else math.inf
        return torch.nan_to_num(dy, 0.0, kept, -kept)  # one pass, but with another derivative at infinity
    return torch.where(dy.isfinite() if infinite else ~dy.isnan(), dy, 0.0)
