"""Cutting a tensor in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu


def split_reference(x: Tensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """The same in plain torch."""
    return tuple([part.clone() for part in torch.split(x, sizes if isinstance(sizes, int) else list(sizes), dim)])


@op(reference=split_reference, static=("sizes", "dim"), linear=("x",))
def split(x: Tensor, sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return `x` cut in pieces along a dimension, each with memory of its own.

    Math:
        y_k = x[a_k : a_k + n_k] along `dim`, so dx is the dy_k put together again.

    Args:
        x: Floating tensor with at least one dimension.
        sizes: The sizes n_k of the pieces, which sum up to that of `x`; or the size of all but the last, which may be smaller.
        dim: Along which dimension.

    Returns:
        A tuple of tensors of x's dtype: copies, so that each may be changed in place and none keeps `x` alive.

    Saves:
        No tensor.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast. The gradient
        of an output that nobody used counts as zero.

    Raises:
        TypeError: for an `x` that is no floating tensor, sizes that are no integers, or a `dim` that is none.
        IndexError: for a `dim` that `x` does not have.
        ValueError: for sizes that are negative, or do not sum up to that of `x`.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.arange(5.0, requires_grad=True)
        >>> first, second = pb.ops.split(x, (2, 3))
        >>> second.sum().backward()
        >>> x.grad
        tensor([0., 0., 1., 1., 1.])

    References:
        Griewank and Walther, Evaluating Derivatives, 2nd edition, 2008, chapter 3, doi:10.1137/1.9780898717761.
    """
    arguments.floating("split", x=x)
    arguments.dimension("split", "dim", dim, x)
    pieces = _sizes(sizes, x.shape[dim])
    if cpu.plain(x):
        cut: Any = torch.split_copy if isinstance(pieces, int) else torch.split_with_sizes_copy
        return tuple(cut(x, pieces, dim))
    return tuple([part.clone() for part in torch.split(x, pieces, dim)])


@split.vjp("x")
def _(dys: tuple[Tensor, ...], dim: int) -> Tensor:
    return torch.cat(dys, dim)


@split.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 2.0, 20, dtype=torch.float64).reshape(4, 5)
    yield sample(x, (1, 3))
    yield sample(x, 2, dim=-1)


def _sizes(sizes: int | Sequence[int], whole: int) -> int | list[int]:
    if not isinstance(sizes, (tuple, list)):
        arguments.integer("split", "sizes", sizes, low=1, kind="an integer or a list of integers")
        return sizes  # type: ignore[return-value]
    for i, size in enumerate(sizes):
        arguments.integer("split", f"sizes[{i}]", size, low=0)
    if sum(sizes) != whole:
        raise ValueError(f"split: sizes must sum up to the size of x along dim, {whole}; got {list(sizes)}, which sum up to {sum(sizes)}.")
    return list(sizes)
