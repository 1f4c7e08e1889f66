"""When work may be done in place and block by block: on plain tensors, with nobody recording."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ... import _compat

_transforms = _compat.transforms_active()
_level = _compat.forward_level()
_PLAIN = (Tensor, torch.nn.Parameter)
BLOCK = 1 << 17
"""Elements of a block: half a megabyte of float32, which stays in a core's cache from one step to the next."""


def eager(*tensors: Tensor | None) -> bool:
    """Return whether `tensors` are plain ones and no graph, transform, forward-mode level or compiler follows what is done with them."""
    if torch.compiler.is_compiling() or _transforms() or _level._current_level >= 0:
        return False
    recording = torch.is_grad_enabled()
    for tensor in tensors:  # noqa: SIM110  a compiler traces the loop, not the generator
        if tensor is not None and (type(tensor) not in _PLAIN or (recording and tensor.requires_grad)):
            return False
    return True


def blocks(x: Tensor, elements: int = BLOCK) -> Iterator[slice]:
    """Yield slices of the rows of `x`, each of about `elements` elements; one slice of all where another device than a CPU has them."""
    rows = x.shape[0]
    step = max(1, elements * rows // max(1, x.numel())) if x.device.type == "cpu" else max(1, rows)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def rows_of(x: Tensor) -> Tensor:
    """`x` of shape ``[..., n]`` as ``[rows, n]``; also for one vector, and where a size is 0."""
    if x.dim() == 2:
        return x
    return x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)


def accurate(x: Tensor) -> torch.dtype:
    """The dtype in which sums over `x` are computed: float32 for half precision, else its own."""
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype


def autocasts(x: Tensor) -> bool:
    """Whether autocast is on for x's device; torch refuses to say so for the device "meta"."""
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def silu_backward(dy: Tensor, z: Tensor) -> Tensor:
    """The gradient of SiLU at `z`: torch's kernel, which has no derivative of its own, or a formula that has every derivative."""
    if eager(dy, z):
        return torch.ops.aten.silu_backward(dy, z)
    s = torch.sigmoid(z)
    return dy * (s * (1 + z * (1 - s)))
