"""The way into a region that a process group computes in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from ._group import check


def copy_to_group_reference(x: Tensor, group: Any = None) -> Tensor:
    """The identity, whose gradient is right in a world of one."""
    return x * 1


@op(reference=copy_to_group_reference, static=("group",), linear=("x",))
def copy_to_group(x: Tensor, group: Any = None) -> Tensor:
    """Return `x` itself, with a gradient that is summed over a process group: the way into a tensor-parallel region.

    Math:
        All processes hold the same x, and each uses it for its part of one loss: y_r = x, so dx = sum_r dy_r, the same in all of them. Its
        conjugate is `reduce_from_group`, the way out.

    Args:
        x: Tensor, any shape, the same values in all processes.
        group: Process group; None for the default one.

    Returns:
        A view of `x`.

    Saves:
        Nothing.

    Supports:
        Every dtype and device of the group's backend; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Every process
        calls backward in the same order.

    Raises:
        RuntimeError: without an initialised process group, or in a process that is not in `group`.
        TypeError: for an `x` that is no tensor, or a `group` that is no process group.

    Example:
        >>> import torch, pullback as pb
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> pb.ops.copy_to_group(torch.ones(2))
        tensor([1., 1.])
        >>> dist.destroy_process_group()

    References:
        Shoeybi et al., Megatron-LM, 2019, arXiv:1909.08053, section 3, the operator f.
    """
    check("copy_to_group", x, group)
    return x.view_as(x)


@copy_to_group.vjp("x")
def _(dy: Tensor, group: Any) -> Tensor:
    from .reduce_from_group import reduce_from_group

    return reduce_from_group(dy, group)


@copy_to_group.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4))
