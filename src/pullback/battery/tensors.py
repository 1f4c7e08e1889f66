"""Tensors as the battery handles them: copies that share nothing, random ones, and whether two are the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

IMMUTABLE = (int, float, bool, complex, str, bytes, type(None), type, torch.dtype, torch.device)


def differentiable(tensor: Tensor) -> bool:
    """Return whether a tensor's dtype can carry gradients."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_freed(tensor: Tensor) -> bool:
    """Return whether a tensor's memory was given back under it, as reversible layers do until they rebuild it: reading it would end the process."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
        return False
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage().nbytes() < (last + 1) * tensor.element_size()


def all_same(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
    """Return whether two lists of results are the same bits, one by one."""
    return len(a) == len(b) and all(map(same, a, b))


def same(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether two results are the same bits in the same shape and dtype (NaN equals NaN)."""
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if is_freed(a) or is_freed(b):
        return is_freed(a) and is_freed(b)
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return a.layout is b.layout and bool(torch.equal(a.to_dense(), b.to_dense()))
    return bool(torch.equal(a, b)) or bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


def copy_tensor(tensor: Tensor, *, like: Tensor | None = None) -> Tensor:
    """Return a detached copy of `tensor`'s values with the strides, Python attributes and Parameter-ness of `like` (default: its own).

    No memory is shared; gaps between strided elements hold NaN, so that code which reads them shows. New values for an expanded tensor are not
    expanded: they could differ where its elements share memory. What was freed is copied as NaN.
    """
    source = tensor.detach()
    if is_freed(source):
        return as_the_user_made_it(torch.full(source.shape, torch.nan if differentiable(source) else 0, dtype=source.dtype), tensor)
    fits = like is not None and like.shape == tensor.shape and (like is tensor or 0 not in like.stride())
    model = like if fits and like is not None else tensor
    if source.layout is not torch.strided or type(tensor) not in (Tensor, torch.nn.Parameter):
        return source.clone()
    if model.is_contiguous():
        new = source.clone(memory_format=torch.contiguous_format)
    else:
        new = _copy_strided(source, model)
    return as_the_user_made_it(new, model)


def as_the_user_made_it(new: Tensor, model: Tensor) -> Tensor:
    """Return `new` as a Parameter if `model` is one, with copies of `model`'s Python attributes."""
    if isinstance(model, torch.nn.Parameter) and not isinstance(new, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=False)
    for key, value in model.__dict__.items():
        setattr(new, key, copied(value, {}))
    return new


def cast_tensor(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of another dtype with the same strides and Python attributes (tensors among them are cast as well)."""
    new = copy_tensor(tensor.detach().to(dtype))
    if isinstance(tensor, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=False)
    for key, value in tensor.__dict__.items():
        setattr(new, key, value.detach().to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else copied(value, {}))
    return new


def move_tensor(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on another device with the same strides and Python attributes."""
    moved = tensor.detach().to(device)
    if moved.layout is torch.strided and moved.stride() != tensor.stride() and type(tensor) in (Tensor, torch.nn.Parameter):
        moved = _copy_strided(moved, tensor)
    return as_the_user_made_it(moved.clone() if moved is tensor else moved, tensor)


def _copy_strided(source: Tensor, model: Tensor) -> Tensor:
    extent = 1 + sum((n - 1) * s for n, s in zip(model.shape, model.stride(), strict=True)) if model.numel() else 0
    memory = torch.full((extent,), torch.nan if differentiable(source) else 0, dtype=source.dtype, device=source.device)
    new = memory.as_strided(model.shape, model.stride())
    if 0 not in model.stride() or model.numel() == 0:
        return new.copy_(source)
    for dim, stride in enumerate(model.stride()):
        if stride == 0:
            new, source = new.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    new.copy_(source)
    return memory.as_strided(model.shape, model.stride())


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of an argument that is not a tensor; itself, where it cannot be copied."""
    if isinstance(value, IMMUTABLE):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def random_like(tensor: Tensor, generator: torch.Generator, choices: Sequence[float]) -> Tensor:
    """Return a tensor of `tensor`'s shape, strides and dtype whose entries are drawn from ±`choices` (both parts, if complex)."""
    values = torch.tensor([*choices, *(-c for c in choices)], dtype=torch.float64)

    def draw() -> Tensor:
        return values[torch.randint(len(values), tensor.shape, generator=generator)]

    drawn = torch.complex(draw(), draw()) if tensor.is_complex() else draw()
    new = torch.empty_like(tensor, memory_format=torch.preserve_format).detach()
    return new.copy_(drawn)


def full_mantissas(cotangent: Tensor, generator: torch.Generator) -> Tensor:
    """Return a cotangent of few digits, varied in place, so that its multiples fit into a narrower dtype only where backward casts to it."""
    factor = torch.rand(cotangent.shape, generator=generator, dtype=torch.float64) / 2 + 0.5
    return cotangent.mul_(factor.to(cotangent))
