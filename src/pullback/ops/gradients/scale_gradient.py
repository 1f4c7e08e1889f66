"""Gradient scaling."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def scale_gradient_reference(x: Tensor, scale: float | Tensor) -> Tensor:
    """Gradient scaling in plain torch: a detour whose value is `x`."""
    return x.detach() + scale * (x - x.detach())


@op(reference=scale_gradient_reference, static=("scale",), elementwise=True)
def scale_gradient(x: Tensor, scale: float | Tensor) -> Tensor:
    """Return `x` itself, with a gradient that is multiplied by `scale`: a learning rate of its own for what lies before.

    Math:
        y = x. Declared instead of its derivative: dx = scale · dy.

    Args:
        x: Floating tensor, any shape.
        scale: A number, or a tensor that broadcasts to x's shape; it is not differentiated.

    Returns:
        A view of `x`.

    Saves:
        `scale` where it is a tensor; else nothing.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order of the declared gradient, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `scale` that is neither a number nor a real tensor.
        ValueError: for a `scale` that does not broadcast to x's shape.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.ones(2, requires_grad=True)
        >>> pb.ops.scale_gradient(x, torch.tensor([0.0, 3.0])).sum().backward()
        >>> x.grad
        tensor([0., 3.])

    References:
        Schrittwieser et al., Mastering Atari, Go, chess and shogi by planning with a learned model, 2020, arXiv:1911.08265, appendix G.
    """
    arguments.floating("scale_gradient", x=x)
    if isinstance(scale, Tensor):
        arguments.real("scale_gradient", "scale", scale)
        arguments.broadcasts_to("scale_gradient", "scale", scale, x)
    else:
        arguments.number("scale_gradient", "scale", scale, kind="a number or a tensor")
    return x.view_as(x)


@scale_gradient.surrogate
def _(x: Tensor, scale: float | Tensor) -> Tensor:
    return scale * x


@scale_gradient.vjp("x")
def _(dy: Tensor, scale: float | Tensor) -> Tensor:
    return scale * dy


@scale_gradient.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, 0.25)
    yield sample(x, -2)
