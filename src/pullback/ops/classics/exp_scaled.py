"""A multiple of the exponential."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu, elementwise


def exp_scaled_reference(x: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """The same in plain torch."""
    return scale * torch.exp(x)


@op(reference=exp_scaled_reference, elementwise=True)
def exp_scaled(x: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """Return ``scale · exp(x)``, which is its own derivative.

    Math:
        y = scale exp(x), so dx = dy y and dscale = dy exp(x), summed over the dimensions that were broadcast.

    Args:
        x: Floating tensor, any shape.
        scale: A number, or a floating tensor that broadcasts with `x` and then gets its gradient.

    Returns:
        A tensor of the broadcast shape and x's dtype.

    Saves:
        The output: nothing where what comes next keeps it too. For the gradient of `scale`, `x`.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast. C kernels
        give 0 for ``exp(x)`` below 1.2e-38, where torch gives a subnormal number.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `scale` that is neither a number nor one.
        ValueError: for shapes that do not broadcast.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.exp_scaled(torch.tensor([0.0, 1.0], requires_grad=True), 2.0)
        tensor([2.0000, 5.4366], grad_fn=<exp_scaledBackward>)

    References:
        Griewank and Walther, Evaluating Derivatives, 2nd edition, 2008, chapter 3, doi:10.1137/1.9780898717761.
    """
    arguments.floating("exp_scaled", x=x)
    if isinstance(scale, Tensor):
        arguments.floating("exp_scaled", scale=scale)
        arguments.broadcasts("exp_scaled", x=x, scale=scale)
        return scale * torch.exp(x)
    arguments.number("exp_scaled", "scale", scale, kind="a number or a floating tensor")
    fast = elementwise.flat("exp_scaled_forward", x, numbers=(scale,))
    if fast is not None:
        return fast
    y = torch.exp(x)
    return y.mul_(elementwise.factor(scale, y)) if cpu.plain(x) else y * scale


@exp_scaled.vjp("x")
def _(dy: Tensor, out: Tensor) -> Tensor:
    return dy * out


@exp_scaled.vjp("scale")
def _(dy: Tensor, x: Tensor) -> Tensor:
    return dy * torch.exp(x)


@exp_scaled.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, 2)
    yield sample(x, torch.tensor([0.5, -1.0, 1.25, 2.0], dtype=torch.float64))
