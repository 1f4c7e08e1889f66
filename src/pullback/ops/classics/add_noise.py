"""Additive noise."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments, streams
from ..kernels import elementwise


def add_noise_reference(x: Tensor, std: float | Tensor = 1.0, seed: int | Tensor | None = None) -> Tensor:
    """The same in plain torch, with the same noise."""
    state = streams.drawn(x) if seed is None else streams.given("add_noise", seed, x)
    return x + std * streams.normal_of_words(state, x).to(x.dtype)


@op(reference=add_noise_reference, static=("seed",))
def add_noise(x: Tensor, std: float | Tensor = 1.0, seed: int | Tensor | None = None) -> Tensor:
    """Return `x` with Gaussian noise of standard deviation `std` added to each element.

    Math:
        y = x + std n with n normal, mean 0 and variance 1, so dx = dy, whatever was drawn, and dstd = dy n, summed over the dimensions that were
        broadcast. The noise is a function of a seed and of each element's place, so the seed stands for it.

    Args:
        x: Floating tensor, any shape.
        std: A number, or a floating tensor that broadcasts to `x` and then gets its gradient.
        seed: An integer, or an int64 tensor with one element, for noise of one's own; by default drawn from torch's generator, as
            `torch.manual_seed` sets it.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        Nothing for the gradient of `x`; for that of `std` the seed, 8 bytes in all.

    Supports:
        float64, float32, bfloat16, float16 (each noise is one of 2^24 radii and 2^24 angles, none beyond 5.8 standard deviations); CPU and CUDA;
        derivatives of
        any order, torch.func (vmap with a choice of randomness), forward mode, torch.compile, autocast, checkpointing, DDP. One seed gives one noise,
        whatever the strides, the number of threads, the dtype and the device, up to rounding.

    Raises:
        TypeError: for an `x` that is no floating tensor, a `std` that is neither a number nor one, or a `seed` that is no integer.
        ValueError: for a negative number as `std`, one that does not broadcast to `x`, or a `seed` of more than one element.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.zeros(10000, requires_grad=True)
        >>> y = pb.ops.add_noise(x, 0.1, seed=0)
        >>> abs(y.std() - 0.1) < 0.01
        tensor(True)

    References:
        Box and Muller, A note on the generation of random normal deviates, 1958, doi:10.1214/aoms/1177706645.
        Bishop, Training with noise is equivalent to Tikhonov regularization, 1995, doi:10.1162/neco.1995.7.1.108.
    """
    arguments.floating("add_noise", x=x)
    if isinstance(std, Tensor):
        arguments.floating("add_noise", std=std)
        arguments.broadcasts_to("add_noise", "std", std, x)
    else:
        arguments.number("add_noise", "std", std, low=0, kind="a number or a floating tensor")
    state = streams.drawn(x) if seed is None else streams.given("add_noise", seed, x)
    return keep(_noisy(x, std, state), state=state)


@add_noise.vjp("x")
def _(dy: Tensor) -> Tensor:
    return dy


@add_noise.vjp("std")
def _(dy: Tensor, state: Tensor) -> Tensor:
    return dy * streams.normal(state, dy).to(dy.dtype)


@add_noise.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 3.0, 20, dtype=torch.float64).reshape(4, 5)
    yield sample(x, 0.25, seed=1)
    yield sample(x, torch.tensor([[0.5], [1.0], [0.25], [2.0]], dtype=torch.float64), seed=torch.tensor(7))


def _noisy(x: Tensor, std: float | Tensor, state: Tensor) -> Tensor:
    if isinstance(std, Tensor):
        return x + std * streams.normal(state, x).to(x.dtype)
    fast = elementwise.flat("add_noise", x, numbers=(std,), extra=(state,))
    if fast is not None:
        return fast
    if not (streams.on_cpu(x) and x.is_contiguous() and x.dtype is torch.float32):
        return x + std * streams.normal(state, x).to(x.dtype)
    if x.numel() <= streams.BLOCK:
        noise = streams.normal_of_block(int(state), 0, x.numel())
        return torch.add(x, noise if x.dim() == 1 else noise.view(x.shape), alpha=std)
    out = torch.empty_like(x)
    source, target = x.view(-1), out.view(-1)
    for where, noise in streams.normal_blocks(int(state), x.numel()):
        torch.add(source[where], noise, alpha=std, out=target[where])
    return out
