"""Bytes of a call: kept for backward, in use at the most, and moved at the least."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.graph import leaf_of, walk
from ..capture.held import held_by
from ..capture.saved import reachable, storages
from .call import Call, outputs_of, tensors_in


def kept_and_moved(call: Call) -> tuple[int, int]:
    """Return bytes that are kept for backward and would be free without it, and bytes that forward and backward must move.

    Kept memory is counted by block, a view as the whole block that it keeps alive. Moved are arguments, outputs, cotangents, gradients and all that
    is kept, each once.
    """
    own = owned(call)
    result = call.forward()
    outputs, live = tensors_in(result), outputs_of(result)
    nodes = walk(live).nodes
    held = storages(item.tensor for node in nodes for item in held_by(node))
    anyway = storages([*call.inputs.tensors, *own, *outputs, *(leaf for node in nodes if (leaf := leaf_of(node)) is not None)])
    kept = sum(size for key, size in held.items() if key not in anyway)
    used = {_compat.storage_id(t) for t in call.inputs.tensors}
    weights = [t for t in call.roots if _compat.storage_id(t) not in used]
    gradients = [g for g in call.backward(live) if g is not None]
    moved = sum(t.nbytes for t in (*call.inputs.tensors, *weights, *outputs, *call.cotangents, *gradients)) + sum(held.values())
    return kept, moved


def owned(call: Call) -> list[Tensor]:
    """Return tensors that live with what is called: a module's parameters and buffers, what a function closes over."""
    if isinstance(call.fn, torch.nn.Module | types.FunctionType | types.MethodType | functools.partial):
        return [tensor for _, tensor in reachable(call.fn)]
    return []


def peak(call: Call) -> int:
    """Return the most bytes in use at once during forward and backward, beyond those before.

    On a CPU these are the bytes that torch's allocator hands out, so that the number is the same every time; memory that a library or a kernel
    allocates by itself is not seen.
    """
    device = device_of(call.inputs.tensors)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call.once()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return most(_compat.allocations(call.once))


def most(changes: Iterable[int]) -> int:
    """Return the highest level that bytes taken and given back, in order, reach."""
    level = top = 0
    for change in changes:
        level += change
        top = max(top, level)
    return top


def flops(call: Call) -> int:
    """Return the operations of matrix products and convolutions in forward and backward, as torch counts them; 0 where it cannot."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    try:
        with counter:
            call.once()
    except Exception:
        return 0
    return int(counter.get_total_flops())


def device_of(tensors: Iterable[Any]) -> torch.device:
    """Return the device of the first tensor that is not on the CPU, else the CPU."""
    return next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))
