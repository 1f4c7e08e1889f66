"""Dropout."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments, streams
from ..kernels import elementwise


def dropout_reference(x: Tensor, p: float = 0.5, training: bool = True, seed: int | Tensor | None = None) -> Tensor:
    """Dropout in plain torch, with the same mask."""
    if not training:
        return x.clone()
    state = streams.drawn(x) if seed is None else streams.given("dropout", seed, x)
    mask = streams.words(state, x) >= streams.threshold(p) if p < 1 else torch.zeros_like(x)
    return x * mask * (1 / (1 - p) if p < 1 else 0.0)


@op(reference=dropout_reference, static=("p", "training", "seed"))
def dropout(x: Tensor, p: float = 0.5, training: bool = True, seed: int | Tensor | None = None) -> Tensor:
    """Return `x` with each element zeroed with probability `p` and the others divided by ``1 - p``.

    Math:
        y = x m / (1 - p) with a mask m of zeros and ones, so dx = dy m / (1 - p). The mask is a function of a seed and of each element's place, so
        the seed stands for it. p = 1 zeroes everything.

    Args:
        x: Floating tensor, any shape.
        p: Probability of an element to be zeroed, from 0 to 1.
        training: False to return a view of `x`.
        seed: An integer, or an int64 tensor with one element, for a mask of one's own; by default drawn from torch's generator, as
            `torch.manual_seed` sets it.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        With C or Triton kernels the seed, 8 bytes in all; else that and a mask of one byte an element.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func (vmap with a choice of randomness), forward mode,
        torch.compile, autocast, checkpointing, DDP. One seed gives one mask, whatever the strides, the number of threads, the dtype and the device.

    Raises:
        TypeError: for an `x` that is no floating tensor, a `p` that is no number, a `training` that is no bool, or a `seed` that is no integer.
        ValueError: for a `p` outside of 0 to 1, or a `seed` of more than one element.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.dropout(torch.ones(8), 0.5, seed=3)
        tensor([2., 0., 0., 2., 0., 2., 2., 2.])

    References:
        Srivastava et al., Dropout: a simple way to prevent neural networks from overfitting, JMLR 15, 2014.
        Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011, doi:10.1145/2063384.2063405 (numbers addressed by counters).
    """
    arguments.floating("dropout", x=x)
    arguments.number("dropout", "p", p, 0, 1)
    arguments.flag("dropout", "training", training)
    if not training or p == 0:
        return keep(x.view_as(x), mask=None, state=None)
    if p == 1:
        return keep(x * 0.0, mask=0.0, state=None)
    state = streams.drawn(x) if seed is None else streams.given("dropout", seed, x)
    fast = _fast(x, p, state)
    if fast is not None:
        return keep(fast, mask=None, state=state)
    mask = streams.kept_bytes(state, p, x) if streams.on_cpu(x) else streams.kept(state, p, x)
    return keep(_masked(x, mask, 1 / (1 - p)), mask=mask, state=None)


@dropout.vjp("x")
def _(dy: Tensor, p: float, mask: Tensor | float | None, state: Tensor | None) -> Tensor:
    if state is not None:
        fast = _fast(dy, p, state)
        if fast is not None:
            return fast
        mask = streams.kept(state, p, dy)
    if mask is None:
        return dy
    return _masked(dy, mask, 1 / (1 - p)) if p < 1 else dy * mask


@dropout.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 3.0, 20, dtype=torch.float64).reshape(4, 5)
    yield sample(x, 0.25, seed=1)
    yield sample(x, 0.75, seed=torch.tensor(7))


def _masked(x: Tensor, mask: Tensor | float, scale: float) -> Tensor:
    if not (isinstance(mask, Tensor) and streams.on_cpu(x) and x.is_contiguous()):
        return x * mask * scale
    kept = mask.to(x.dtype)
    return torch.addcmul(elementwise.constant(0.0, x.dtype), kept, x, value=scale, out=kept)


def _fast(x: Tensor, p: float, state: Tensor) -> Tensor | None:
    return elementwise.flat("dropout", x, numbers=(streams.threshold(p), 1 / (1 - p)), extra=(state,))
