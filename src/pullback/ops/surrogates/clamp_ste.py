"""Clamping with a straight-through gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def clamp_ste_reference(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Clamping in plain torch, with the usual detour around its gradient."""
    return x + (x.clamp(low, high) - x).detach()


@op(reference=clamp_ste_reference, static=("low", "high"), elementwise=True)
def clamp_ste(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Return `x` limited to ``[low, high]``, with the gradient of the identity.

    Math:
        y = min(max(x, low), high), whose derivative is zero outside of the bounds: a value that has left them never comes back.
        Declared instead: dx = dy everywhere.

    Args:
        x: Floating tensor, any shape.
        low: The least value, or None for none.
        high: The greatest value, or None for none.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        Nothing.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a bound that is neither a number nor None.
        ValueError: where both bounds are None, or `low` is above `high`.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-3.0, 0.5, 2.0], requires_grad=True)
        >>> y = pb.ops.clamp_ste(x, 0, 1)
        >>> y
        tensor([0.0000, 0.5000, 1.0000], grad_fn=<clamp_steBackward>)
        >>> y.sum().backward()
        >>> x.grad
        tensor([1., 1., 1.])

    References:
        Bengio, Léonard and Courville, Estimating or propagating gradients through stochastic neurons for conditional computation, 2013,
        arXiv:1308.3432.
    """
    arguments.floating("clamp_ste", x=x)
    if low is None and high is None:
        raise ValueError("clamp_ste: low and high are both None; give at least one bound.")
    if low is not None:
        arguments.number("clamp_ste", "low", low, kind="a number or None")
    if high is not None:
        arguments.number("clamp_ste", "high", high, low=low, kind="a number or None")
    return x.clamp(low, high)


@clamp_ste.surrogate
def _(x: Tensor, low: float | None, high: float | None) -> Tensor:
    return x


@clamp_ste.vjp("x")
def _(dy: Tensor) -> Tensor:
    return dy


@clamp_ste.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.1, 2.3, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, -1.0, 1.5)
    yield sample(x, high=0.25)
