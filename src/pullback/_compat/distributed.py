"""Processes that work together."""

from __future__ import annotations

from typing import Any

from .compiler import import_compiler


def forget_process_groups() -> Any:
    """Let a forked process start with no process group; returns the inherited ones, whose threads are gone: keep them, as ending them hangs.

    Fallback: none; torch.distributed has no other way to leave a group without ending it. Retire when it has one.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    inherited = (distributed_c10d._world, dist.GroupMember.WORLD)
    distributed_c10d._world = type(distributed_c10d._world)()
    dist.GroupMember.WORLD = None  # type: ignore[assignment]
    return inherited


def import_dtensor() -> None:
    """Import DTensor and the compiler's front end, which it imports at its first operation, so that forked processes share both.

    Fallback: as for `import_compiler`. Retire together with it.
    """
    import torch.distributed.tensor  # noqa: F401

    import_compiler()


def functional_collective(name: str, *args: Any, **kwargs: Any) -> Any:
    """The result of a collective that writes into no tensor, waited for: compilers follow it, also within torch.func, where they lose such writes.

    Fallback: none; all_reduce, all_gather_tensor and reduce_scatter_tensor. Retire when torch.distributed offers them under public names.
    """
    import torch.distributed._functional_collectives as collectives

    function = getattr(collectives, name.replace("_tensor", "_single"), None) or getattr(collectives, name)  # torch 2.13 renamed two
    out = function(*args, **kwargs)
    return out.wait() if isinstance(out, collectives.AsyncCollectiveTensor) else out
