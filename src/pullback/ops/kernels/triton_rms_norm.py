"""Root-mean-square norm by Triton: one walk over memory in forward, one in backward."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 1 << 12
"""Elements of a tile of rows, if a row is not longer."""


@triton.jit
def _forward(x, weight, y, r, rows, n, x_stride, eps, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (at < rows)[:, None] & (column < n)[None, :]
    a = tl.load(x + at.to(tl.int64)[:, None] * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(a * a, axis=1) / n + eps)
    out = a * root[:, None]
    if WEIGHTED:
        out = out * tl.load(weight + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    tl.store(y + at.to(tl.int64)[:, None] * n + column[None, :], out.to(y.dtype.element_ty), mask=inside)
    tl.store(r + at, root, mask=at < rows)


@triton.jit
def _backward(
    dy, x, weight, r, dx, partial, rows, n, dy_stride, x_stride, per_program, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    w = tl.full([WIDTH], 1.0, tl.float32)
    if WEIGHTED:
        w = tl.load(weight + column, mask=column < n, other=0.0).to(tl.float32)
    total = tl.zeros([WIDTH], tl.float32)
    for step in range(per_program):
        at = (program * per_program + step) * ROWS + tl.arange(0, ROWS)
        inside = (at < rows)[:, None] & (column < n)[None, :]
        row = at.to(tl.int64)[:, None]
        g = tl.load(dy + row * dy_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        a = tl.load(x + row * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        root = tl.load(r + at, mask=at < rows, other=0.0)
        h = a * root[:, None]
        if WEIGHTED:
            total += tl.sum(g * h, axis=0)
        g = g * w[None, :]
        mean = tl.sum(g * h, axis=1) / n
        out = (g - h * mean[:, None]) * root[:, None]
        tl.store(dx + row * n + column[None, :], out.to(dx.dtype.element_ty), mask=inside)
    if WEIGHTED:
        tl.store(partial + program.to(tl.int64) * n + column, total, mask=column < n)


def forward(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of rows ``[rows, n]`` in x's dtype, and r ``[rows]`` in float32."""
    rows, n = x.shape
    x, weight = _packed(x), None if weight is None else weight.contiguous()
    y, r = torch.empty((rows, n), dtype=x.dtype, device=x.device), torch.empty(rows, dtype=torch.float32, device=x.device)
    tile = _tile(n, weight)
    if not rows:
        return y, r
    with torch.cuda.device_of(x):
        _forward[(-(-rows // tile["ROWS"]),)](x, weight, y, r, rows, n, x.stride(0), eps, **tile)
    return y, r


def backward(dy: Tensor, x: Tensor, weight: Tensor | None, r: Tensor) -> tuple[Tensor, Tensor | None]:
    """The gradients for rows ``[rows, n]``; weight's is summed in float32."""
    rows, n = x.shape
    dy, x, weight = _packed(dy), _packed(x), None if weight is None else weight.contiguous()
    dx, tile = torch.empty((rows, n), dtype=x.dtype, device=x.device), _tile(n, weight)
    tiles = -(-rows // tile["ROWS"])
    per_program = max(1, -(-tiles // _programs(x.device)))
    programs = -(-tiles // per_program)
    partial = torch.empty((programs, n), dtype=torch.float32, device=x.device) if weight is not None else None
    if not rows:
        return dx, None if partial is None else partial.sum(0)
    with torch.cuda.device_of(x):
        _backward[(programs,)](dy, x, weight, r, dx, partial, rows, n, dy.stride(0), x.stride(0), per_program, **tile)
    return dx, None if partial is None else partial.sum(0)


def _packed(x: Tensor) -> Tensor:
    """`x` with entries of a row side by side; rows may lie anywhere."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _tile(n: int, weight: Tensor | None) -> dict[str, Any]:
    width = triton.next_power_of_2(max(n, 1))
    rows = max(1, TILE // width)
    return {"WEIGHTED": weight is not None, "ROWS": rows, "WIDTH": width, "num_warps": min(32, max(4, rows * width // 1024))}


def _programs(device: torch.device) -> int:
    """Programs that walk over rows in backward: two for each multiprocessor, so that few partial sums are left to add."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
