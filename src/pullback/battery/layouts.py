"""The same values in other memory layouts: what consumers of an output do to its gradient, and what callers do to an input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _compat
from .evaluate import UserCodeError


def _unchanged(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to lay values out.

    Args:
        name: In words: ``"transposed"``.
        apply: Returns the same values in this layout, in memory of its own.
        values: Adapts values to what the layout can hold (an expanded one repeats its first row); the identity for most.
        lazy: Whether the memory holds other values, with a conjugation or negation pending.
    """

    name: str
    apply: Callable[[Tensor], Tensor]
    values: Callable[[Tensor], Tensor] = _unchanged
    lazy: bool = False

    def describe(self, tensors: Sequence[Tensor]) -> str:
        """Return the layout with shape and strides of the largest tensor: ``"transposed [8, 64] strides (1, 8)"``."""
        tensor = max(tensors, key=lambda t: t.numel())
        return f"{self.name} {list(tensor.shape)} strides {tuple(tensor.stride())}"


def transposed(t: Tensor) -> Tensor:
    """Return `t` stored with its first and last dimension exchanged."""
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t.clone()


def sliced(t: Tensor) -> Tensor:
    """Return `t` as every second column of a block filled with NaN (or -1): what slicing or cat gives."""
    wide = _filled((*t.shape[:-1], 2 * t.shape[-1]), t) if t.dim() else _filled((2,), t)
    view = wide[..., ::2] if t.dim() else wide[0]
    return view.copy_(t)


def offset(t: Tensor) -> Tensor:
    """Return `t` as columns of a wider block, rows not packed, starting at an offset: what the gradient of `torch.cat` gives."""
    if t.dim() == 0:
        return _filled((3,), t)[1].copy_(t)
    wide = _filled((*t.shape[:-1], t.shape[-1] + 3), t)
    return wide[..., 1 : 1 + t.shape[-1]].copy_(t)


def behind(t: Tensor) -> Tensor:
    """Return `t` as the last rows of a taller block: contiguous, but not from the start of its memory, as the parts of a chunked gradient are."""
    if t.dim() == 0:
        return offset(t)
    return _filled((t.shape[0] + 1, *t.shape[1:]), t)[1:].copy_(t)


def expanded(t: Tensor) -> Tensor:
    """Return a zero-stride expansion of the first entry: what the gradient of `sum()` gives."""
    return t.reshape(-1)[:1].clone().reshape([1] * t.dim()).expand(t.shape) if t.numel() else t.clone()


def expanded_rows(t: Tensor) -> Tensor:
    """Return the first row repeated with stride 0: what the gradient of `sum(0)` gives."""
    return t[:1].clone(memory_format=torch.contiguous_format).expand(t.shape) if t.dim() and t.numel() else t.clone()


def channels_last(t: Tensor) -> Tensor:
    """Return `t` with its second dimension innermost, for images and volumes: what cuDNN and compilers prefer."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.clone(memory_format=formats.get(t.dim(), torch.contiguous_format))


def lazily_conjugate(t: Tensor) -> Tensor:
    """Return `t` as the pending conjugate of what its memory holds: what the gradient of `conj()` gives."""
    return t.conj().resolve_conj().conj() if t.is_complex() else t.clone()


def lazily_negative(t: Tensor) -> Tensor:
    """Return `t` as the pending negative of what its memory holds: what the gradient of `conj().imag` gives."""
    return _compat.negative_view(t.neg()) if t.is_floating_point() else t.clone()


def contiguous(t: Tensor) -> Tensor:
    return t.clone(memory_format=torch.contiguous_format)


LAYOUTS = (
    Layout("packed", contiguous),
    Layout("expanded", expanded, lambda t: expanded(t).contiguous()),
    Layout("transposed", transposed),
    Layout("with an offset and unpacked rows,", offset),
    Layout("contiguous, with an offset,", behind),
    Layout("sliced", sliced),
    Layout("with expanded rows,", expanded_rows, lambda t: expanded_rows(t).contiguous()),
    Layout("channels-last", channels_last),
    Layout("with a pending conjugation,", lazily_conjugate, lazy=True),
    Layout("with a pending negation,", lazily_negative, lazy=True),
)


def of_cotangents(outputs: Sequence[Tensor]) -> Iterator[Layout]:
    """Yield the layouts that differ from the outputs' own for at least one of them."""
    for layout in LAYOUTS:
        if any(_differs(layout, y.detach()) for y in outputs if y.layout is torch.strided and y.numel()):
            yield layout


def _differs(layout: Layout, y: Tensor) -> bool:
    laid_out = layout.apply(layout.values(y))
    if laid_out.is_conj() != y.is_conj() or laid_out.is_neg() != y.is_neg():
        return True
    return laid_out.stride() != y.stride() or laid_out.storage_offset() != 0


def refuses_format(error: UserCodeError) -> bool:
    """Return whether an error says that memory was short, which tells nothing about layouts."""
    return "alloc" in str(error.error) and "memory" in str(error.error)


def _filled(shape: Sequence[int], like: Tensor) -> Tensor:
    fill = torch.nan if like.is_floating_point() or like.is_complex() else -1
    return torch.full(tuple(shape), fill, dtype=like.dtype, device=like.device)
