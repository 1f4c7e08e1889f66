"""Noise on gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ._seeded_normal import seeded_normal


def gradient_noise_reference(x: Tensor, std: float | Tensor) -> Tensor:
    """The same in plain torch, by a hook."""
    y = x.view_as(x)
    seed = _seed()
    if y.requires_grad:
        y.register_hook(lambda dy: dy + std * seeded_normal(seed, dy))
    return y


@op(reference=gradient_noise_reference, static=("std",))
def gradient_noise(x: Tensor, std: float | Tensor) -> Tensor:
    """Return `x` itself, with Gaussian noise added to its gradient.

    Math:
        y = x. Declared instead of its derivative: dx = dy + std · n with n normal, mean 0 and variance 1; affine in dy.
        The noise is a function of a seed that the forward draws, so that a second backward through the same graph adds the same noise.

    Args:
        x: Floating tensor, any shape.
        std: Standard deviation of the noise: a number, or a tensor with one element; it is not differentiated.

    Returns:
        A view of `x`.

    Saves:
        A seed of 8 bytes, and `std` where it is a tensor.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; second derivatives, torch.func (vmap with a choice of randomness), forward mode (that of
        y = x), torch.compile, autocast, checkpointing. The seed is drawn also where nobody wants a gradient, as in the first run of a checkpoint:
        layers would share their noise otherwise. The noise is the same for any strides and any number of threads.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `std` that is no number.
        ValueError: for a negative `std`, or one of more than one element.

    Example:
        >>> import torch, pullback as pb
        >>> _ = torch.manual_seed(0)
        >>> x = torch.zeros(10000, requires_grad=True)
        >>> pb.ops.gradient_noise(x, 0.1).sum().backward()
        >>> abs(x.grad.mean() - 1) < 0.01, abs(x.grad.std() - 0.1) < 0.01
        (tensor(True), tensor(True))

    References:
        Neelakantan et al., Adding gradient noise improves learning for very deep networks, 2015, arXiv:1511.06807.
    """
    _check(x, std)
    return keep(x.view_as(x), seed=_seed())


@gradient_noise.vjp("x", exact=False, linear=False, reason="noise is added to the gradient")
def _(dy: Tensor, seed: Tensor, std: float | Tensor) -> Tensor:
    return dy + std * seeded_normal(seed, dy)


@gradient_noise.jvp
def _(tangents):
    return tangents.x.view_as(tangents.x)


@gradient_noise.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, 0.5)


def _seed() -> Tensor:
    return torch.randint(2**62, ())


def _check(x: Tensor, std: float | Tensor) -> None:
    arguments.floating("gradient_noise", x=x)
    arguments.scalar("gradient_noise", "std", std, low=0)
