"""Process groups, and the three collectives that the ops are made of, without derivatives."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..._compat import functional_collective
from .. import arguments


def size_of(op: str, group: Any) -> int:
    """Return how many processes `group` has; None is the default group.

    Raises:
        RuntimeError: where there is no group, or this process is not in it.
        TypeError: for what is no group.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"{op}: there is no process group. Call torch.distributed.init_process_group first, in every process; a single process can be a group."
        )
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{op}: group must be a process group or None, got {type(group).__name__}."[:200])
    size = dist.get_world_size(group)
    if size < 1:
        raise RuntimeError(f"{op}: this process is not in the group.")
    return size


def check(op: str, x: Any, group: Any) -> int:
    """Refuse what cannot be communicated; return the size of the group."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: x must be a tensor, got {type(x).__name__}.")
    arguments.dense(op, "x", x)
    return size_of(op, group)


def check_dim(op: str, dim: Any, x: Tensor) -> None:
    """Refuse a dimension that `x` does not have."""
    arguments.dimension(op, "dim", dim, x)


def summed(x: Tensor, group: Any) -> Tensor:
    """The sum over the group."""
    return functional_collective("all_reduce", x.contiguous(), "sum", group=_named(group))


def gathered(x: Tensor, dim: int, group: Any) -> Tensor:
    """The tensors of the group, one behind the other along `dim`."""
    return functional_collective("all_gather_tensor", x.movedim(dim, 0).contiguous(), 0, group=_named(group)).movedim(0, dim)


def scattered(x: Tensor, dim: int, group: Any) -> Tensor:
    """This process's part along `dim` of the sum over the group."""
    return functional_collective("reduce_scatter_tensor", x.movedim(dim, 0).contiguous(), "sum", 0, group=_named(group)).movedim(0, dim)


def _named(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def everyone(x: Tensor, group: Any) -> list[Tensor]:
    """The tensors of the group as constants, in order of rank, the own one as it is: for references."""
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.detach().contiguous(), group=group)
    parts[dist.get_rank(group)] = x
    return parts


def shifted(dim: int, x: Tensor, batched: int) -> tuple[Tensor, int]:
    """A batched tensor with its batch in front, and the dimension that `dim` of one example then is."""
    x = x.movedim(batched, 0)
    return x, dim + 1 if dim >= 0 else dim
