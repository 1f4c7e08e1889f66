"""Sums and means over a process group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ._group import check, everyone, summed


def all_reduce_reference(x: Tensor, reduce: Literal["sum", "mean"] = "sum", group: Any = None) -> Tensor:
    """The same by gathering; its gradient is that of the own tensor alone, right in a world of one."""
    parts = everyone(x, group)
    return sum(parts[1:], parts[0] * 1) / (len(parts) if reduce == "mean" else 1)


@op(reference=all_reduce_reference, static=("reduce", "group"), linear=("x",))
def all_reduce(x: Tensor, reduce: Literal["sum", "mean"] = "sum", group: Any = None) -> Tensor:
    """Return the sum, or the mean, of x over all processes of a group, with the derivative of what they compute together.

    Math:
        y_r = sum_s x_s in every process r. Where the loss is the sum of the processes' losses, dx_s = sum_r dy_r: an all-reduce again; likewise with
        the mean. Where all processes compute the same loss, which counts once, take `reduce_from_group`.

    Args:
        x: Tensor, any shape, the same in all processes.
        reduce: ``"sum"`` or ``"mean"``.
        group: Process group; None for the default one.

    Returns:
        A tensor of x's shape and dtype, in memory of its own.

    Saves:
        Nothing.

    Supports:
        Every dtype and device of the group's backend; derivatives of any order, torch.func, forward mode, torch.compile, autocast. Every process
        calls it, forward and backward, in the same order.

    Raises:
        RuntimeError: without an initialised process group, or in a process that is not in `group`.
        TypeError: for an `x` that is no tensor, or a `group` that is no process group.
        ValueError: for an unknown `reduce`, or the mean of integers.

    Example:
        >>> import torch, pullback as pb
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> pb.ops.all_reduce(torch.ones(2), "mean")
        tensor([1., 1.])
        >>> dist.destroy_process_group()

    References:
        Message Passing Interface Forum, MPI: A Message-Passing Interface Standard 4.1, 2023, section 6.9.6.
    """
    size = check("all_reduce", x, group)
    arguments.choice("all_reduce", "reduce", reduce, "sum", "mean")
    if reduce == "sum":
        return summed(x, group)
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"all_reduce: the mean needs a floating or complex tensor, got dtype {x.dtype}.")
    return summed(x, group) / size


@all_reduce.vjp("x")
def _(dy: Tensor, reduce: Literal["sum", "mean"], group: Any) -> Tensor:
    return all_reduce(dy, reduce, group)


@all_reduce.vmap
def _(info: Any, in_dims: Any, x: Tensor, reduce: Literal["sum", "mean"], group: Any) -> tuple[Tensor, int]:
    return all_reduce(x, reduce, group), in_dims[0]


@all_reduce.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, "mean")
