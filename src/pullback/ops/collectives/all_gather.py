"""Gathering over a process group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from ._group import check, check_dim, everyone, gathered, shifted


def all_gather_reference(x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """The same by gathering constants; its gradient is that of the own part alone, right in a world of one."""
    return torch.cat(everyone(x, group), dim)


@op(reference=all_gather_reference, static=("dim", "group"), linear=("x",))
def all_gather(x: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """Return the tensors of all processes of a group, one behind the other along a dimension, with the derivative of what they compute together.

    Math:
        y_r = [x_0, x_1, ...] in every process r. Where the loss is the sum of the processes' losses, dx_s is the sum over r of dy_r's part s: a
        reduce-scatter.

    Args:
        x: Tensor with at least one dimension, of the same shape in all processes.
        dim: The dimension along which they are put together.
        group: Process group; None for the default one.

    Returns:
        A tensor of x's dtype and x's shape, `dim` as many times as large as there are processes.

    Saves:
        Nothing.

    Supports:
        Every dtype and device of the group's backend; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Every process
        calls it, forward and backward, in the same order.

    Raises:
        RuntimeError: without an initialised process group, or in a process that is not in `group`.
        TypeError: for an `x` that is no tensor, or a `group` that is no process group.
        IndexError: for a `dim` that `x` does not have.

    Example:
        >>> import torch, pullback as pb
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> pb.ops.all_gather(torch.ones(1, 2), 1)
        tensor([[1., 1.]])
        >>> dist.destroy_process_group()

    References:
        Message Passing Interface Forum, MPI: A Message-Passing Interface Standard 4.1, 2023, section 6.7.
    """
    check("all_gather", x, group)
    check_dim("all_gather", dim, x)
    return gathered(x, dim, group)


@all_gather.vjp("x")
def _(dy: Tensor, dim: int, group: Any) -> Tensor:
    from .reduce_scatter import reduce_scatter

    return reduce_scatter(dy, dim, group)


@all_gather.vmap
def _(info: Any, in_dims: Any, x: Tensor, dim: int, group: Any) -> tuple[Tensor, int]:
    x, dim = shifted(dim, x, in_dims[0])
    return all_gather(x, dim, group), 0


@all_gather.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, -1)
