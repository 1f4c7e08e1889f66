"""Sums over a process group, of which each process gets a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...authoring.op import Sample, op, sample
from ._group import check, check_dim, everyone, scattered, shifted
from .all_gather import all_gather


def reduce_scatter_reference(x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """The same by gathering constants; its gradient is that of the own tensor alone, right in a world of one."""
    parts = everyone(x, group)
    return sum(parts[1:], parts[0] * 1).chunk(len(parts), dim)[dist.get_rank(group)]


@op(reference=reduce_scatter_reference, static=("dim", "group"), linear=("x",))
def reduce_scatter(x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """Return this process's part along a dimension of the sum over all processes, with the derivative of what they compute together.

    Math:
        y_r = part r of sum_s x_s. Where the loss is the sum of the processes' losses, dx_s = [dy_0, dy_1, ...] in every process s: an all-gather.

    Args:
        x: Tensor of the same shape in all processes, `dim` divisible by their number.
        dim: The dimension along which the sum is cut.
        group: Process group; None for the default one.

    Returns:
        A tensor of x's dtype and x's shape, `dim` divided by the number of processes.

    Saves:
        Nothing.

    Supports:
        Every dtype and device of the group's backend; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Every process
        calls it, forward and backward, in the same order.

    Raises:
        RuntimeError: without an initialised process group, or in a process that is not in `group`.
        TypeError: for an `x` that is no tensor, or a `group` that is no process group.
        IndexError: for a `dim` that `x` does not have.
        ValueError: where `dim` cannot be cut into equal parts.

    Example:
        >>> import torch, pullback as pb
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> pb.ops.reduce_scatter(torch.ones(2))
        tensor([1., 1.])
        >>> dist.destroy_process_group()

    References:
        Message Passing Interface Forum, MPI: A Message-Passing Interface Standard 4.1, 2023, section 6.10.
    """
    size = check("reduce_scatter", x, group)
    check_dim("reduce_scatter", dim, x)
    if x.shape[dim] % size:
        raise ValueError(f"reduce_scatter: x has {x.shape[dim]} elements along dim {dim}, which {size} processes cannot share equally.")
    return scattered(x, dim, group)


@reduce_scatter.vjp("x")
def _(dy: Tensor, dim: int, group: Any) -> Tensor:
    return all_gather(dy, dim, group)


@reduce_scatter.vmap
def _(info: Any, in_dims: Any, x: Tensor, dim: int, group: Any) -> tuple[Tensor, int]:
    x, dim = shifted(dim, x, in_dims[0])
    return reduce_scatter(x, dim, group), 0


@reduce_scatter.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 16, dtype=torch.float64).reshape(4, 4)
    yield sample(x)
    yield sample(x, -1)
