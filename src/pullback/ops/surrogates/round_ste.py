"""Rounding with a straight-through gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def round_ste_reference(x: Tensor) -> Tensor:
    """Rounding in plain torch, with the usual detour around its gradient."""
    return x + (torch.round(x) - x).detach()


@op(reference=round_ste_reference, elementwise=True)
def round_ste(x: Tensor) -> Tensor:
    """Return `x` rounded to whole numbers, halves to even, with the gradient of the identity.

    Math:
        y = round(x), whose derivative is zero wherever it exists. Declared instead: dx = dy, the straight-through estimator.

    Args:
        x: Floating tensor, any shape.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        Nothing.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([0.4, 0.5, 1.5], requires_grad=True)
        >>> pb.ops.round_ste(x)
        tensor([0., 0., 2.], grad_fn=<round_steBackward>)

    References:
        Bengio, Léonard and Courville, Estimating or propagating gradients through stochastic neurons for conditional computation, 2013,
        arXiv:1308.3432.
    """
    arguments.floating("round_ste", x=x)
    return torch.round(x)


@round_ste.surrogate
def _(x: Tensor) -> Tensor:
    return x


@round_ste.vjp("x")
def _(dy: Tensor) -> Tensor:
    return dy


@round_ste.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-2.2, 3.3, 12, dtype=torch.float64).reshape(3, 4))
