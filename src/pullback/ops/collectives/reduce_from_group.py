"""The way out of a region that a process group computes in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from ._group import check, everyone, summed
from .copy_to_group import copy_to_group


def reduce_from_group_reference(x: Tensor, group: Any = None) -> Tensor:
    """The same by gathering constants; since the gradient is that of the own tensor, it is right in every world."""
    parts = everyone(x, group)
    return sum(parts[1:], parts[0] * 1)


@op(reference=reduce_from_group_reference, static=("group",), linear=("x",))
def reduce_from_group(x: Tensor, group: Any = None) -> Tensor:
    """Return the sum of x over a process group, with a gradient that is handed on as it is: the way out of a tensor-parallel region.

    Math:
        y = sum_s x_s in every process, and all compute the same loss of it, which counts once: dx_s = dy. Its conjugate is `copy_to_group`, the way
        in. Where each process has a loss of its own, take `all_reduce`.

    Args:
        x: Tensor, any shape, the same in all processes.
        group: Process group; None for the default one.

    Returns:
        A tensor of x's shape and dtype, in memory of its own.

    Saves:
        Nothing.

    Supports:
        Every dtype and device of the group's backend; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Every process
        calls it in the same order.

    Raises:
        RuntimeError: without an initialised process group, or in a process that is not in `group`.
        TypeError: for an `x` that is no tensor, or a `group` that is no process group.

    Example:
        >>> import torch, pullback as pb
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> pb.ops.reduce_from_group(torch.ones(2))
        tensor([1., 1.])
        >>> dist.destroy_process_group()

    References:
        Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053, section 3, the operator g.
    """
    check("reduce_from_group", x, group)
    return summed(x, group)


@reduce_from_group.vjp("x")
def _(dy: Tensor, group: Any) -> Tensor:
    return copy_to_group(dy, group)


@reduce_from_group.vmap
def _(info: Any, in_dims: Any, x: Tensor, group: Any) -> tuple[Tensor, int]:
    return reduce_from_group(x, group), in_dims[0]


@reduce_from_group.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4))
