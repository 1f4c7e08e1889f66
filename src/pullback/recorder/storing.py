"""Keep the arguments of one call within a budget, without leaving a trace in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..capture.recorded import DTYPES, How, Layout, StoredCall, StoredTensor, dtype_named, pack

CALL_BUDGET = 4 << 20
"""Bytes of tensors that one call may keep."""

STATISTICS_FROM = 1 << 18
"""Entries from which statistics are taken."""

ROWS = 2
"""Least number of rows to which a batch is cut."""

_PLAIN = (Tensor, torch.nn.Parameter)
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def layout_of(tensor: Tensor) -> Layout:
    """Return dtype, shape and strides."""
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
    return Layout(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), strides)


class Budget:
    """Bytes that all calls of a recording may keep together."""

    def __init__(self, total: int) -> None:
        self._left = total

    def take(self, size: int) -> bool:
        """Whether `size` more bytes fit; if so they are taken."""
        if size > self._left:
            return False
        self._left -= size
        return True


def store_call(args: Sequence[Any], kwargs: dict[str, Any], *, values: bool, budget: Budget) -> StoredCall:
    """Return a copy of a call's arguments that the program cannot change any more.

    Tensors that are larger than `CALL_BUDGET` together are cut to their first rows where they share the first dimension; what is still too large is
    kept as statistics.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        values: False: keep statistics of all tensors instead of their values.
        budget: What is left for the whole recording.

    Raises:
        ValueError: for a tensor that cannot be laid out again (sparse, complex views, or a dtype without a file format).
    """
    found: list[Tensor] = []
    numbers: dict[int, int] = {}

    def number(tensor: Tensor) -> int:
        if id(tensor) not in numbers:
            _require_plain(tensor)
            numbers[id(tensor)] = len(found)
            found.append(tensor)
        return numbers[id(tensor)]

    packed = [pack(arg, number) for arg in args]
    named = {name: pack(value, number) for name, value in kwargs.items()}
    return StoredCall(packed, named, _store(found, values, budget))


def _require_plain(tensor: Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.dtype not in _NAMES or tensor.is_quantized:
        raise ValueError(f"a {tensor.dtype} tensor of layout {tensor.layout} is not stored")
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the meta device has no values")
    if any(stride < 0 for stride in tensor.stride()):
        raise ValueError("a tensor with negative strides is not stored")


def _store(tensors: list[Tensor], values: bool, budget: Budget) -> list[StoredTensor]:
    if not values:
        return [_stored(t, t, "distribution") for t in tensors]
    narrow = _narrowing(tensors)
    stored: list[StoredTensor] = []
    left = CALL_BUDGET
    for tensor in sorted(range(len(tensors)), key=lambda i: _bytes(narrow(tensors[i]))):
        part = narrow(tensors[tensor])
        size = _bytes(part)
        fits = size <= left and budget.take(size)
        left -= size if fits else 0
        how: How = "distribution" if not fits else "whole" if part is tensors[tensor] else "sampled"
        stored.append(_stored(part, tensors[tensor], how))
    order = sorted(range(len(tensors)), key=lambda i: _bytes(narrow(tensors[i])))
    return [stored[order.index(i)] for i in range(len(tensors))]


def _narrowing(tensors: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what cuts a tensor to its first rows, where the largest tensor is a batch and all together are too large."""
    total = sum(map(_bytes, tensors))
    largest = max(tensors, key=_bytes, default=None)
    if largest is None or total <= CALL_BUDGET or largest.dim() < 2 or largest.shape[0] <= ROWS:
        return lambda tensor: tensor
    batch = largest.shape[0]
    together = sum(_bytes(t) for t in tensors if t.dim() >= 2 and t.shape[0] == batch)
    rest = total - together
    rows = max(ROWS, int(batch * max(CALL_BUDGET - rest, 0) / together))

    def narrow(tensor: Tensor) -> Tensor:
        return tensor.detach().narrow(0, 0, rows) if tensor.dim() >= 1 and tensor.shape[0] == batch and rows < batch else tensor

    return narrow


def _bytes(tensor: Tensor) -> int:
    return _dense(tensor).numel() * tensor.element_size()


def _dense(tensor: Tensor) -> Tensor:
    """Return the tensor with expanded dimensions narrowed to one entry."""
    tensor = tensor.detach()
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _stored(part: Tensor, original: Tensor, how: How) -> StoredTensor:
    dense = _dense(part)
    data = None
    if how != "distribution":
        # Off the GPU at once: memory there belongs to the program.
        data = dense.resolve_conj().resolve_neg().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return StoredTensor(
        layout_of(part),
        str(original.device),
        original.requires_grad,
        isinstance(original, torch.nn.Parameter),
        how,
        tuple(original.shape),
        _statistics(dense) if data is None else {},
        data,
    )


def _thinned(values: Tensor) -> Tensor:
    """Return a view of every n-th entry along the longest dimensions, so that statistics of a large tensor take little memory."""
    while values.numel() > STATISTICS_FROM:
        dim = max(range(values.dim()), key=lambda d: values.shape[d])
        step = min(-(-values.numel() // STATISTICS_FROM), values.shape[dim])
        values = values[(slice(None),) * dim + (slice(None, None, step),)]
    return values


def _statistics(values: Tensor) -> dict[str, float]:
    values = _thinned(values)
    if values.numel() == 0:
        return {}
    wide = values.to(torch.float64) if not values.is_complex() else values.real.to(torch.float64)
    finite = wide[torch.isfinite(wide)]
    if finite.numel() == 0:
        return {}
    low, high = finite.aminmax()
    spread = finite.std(correction=0)
    return {"mean": float(finite.mean()), "std": float(spread), "min": float(low), "max": float(high)}


def is_constant(stored: StoredTensor) -> bool:
    """Whether a differentiated tensor holds one value everywhere, or is a single 0 or 1, as parameters are before training.

    ``x * scale`` is the identity while scale is 1: many a fault does not show at such a point.
    """
    data = stored.data
    if not stored.requires_grad or not dtype_named(stored.layout.dtype).is_floating_point:
        return False
    if data is None:
        return stored.statistics.get("std") == 0
    if data.numel() == 0:
        return False
    first = data.reshape(-1)[0]
    return bool((data == first).all()) and (data.numel() > 1 or float(first) in (0.0, 1.0))


def moved_off(stored: StoredTensor, seed: int) -> StoredTensor:
    """Return a constant tensor with each entry moved towards, or from, zero by a few percent: what a step of training does."""
    data = stored.data
    if data is None:
        data = torch.full(stored.dense_shape, stored.statistics["mean"], dtype=dtype_named(stored.layout.dtype), device="cpu")
    generator = torch.Generator().manual_seed(seed)
    amount = 0.03 + 0.12 * torch.rand(data.shape, generator=generator, dtype=torch.float64, device="cpu")
    values = data.to("cpu", torch.float64)
    return replace(stored, data=torch.where(values == 0, amount, values * (1 - amount)).to(data.dtype))


def is_plain(value: Any) -> bool:
    """Whether a value is a tensor without a behaviour of its own."""
    return type(value) in _PLAIN


__all__ = ["CALL_BUDGET", "Budget", "is_constant", "is_plain", "layout_of", "moved_off", "store_call"]
