"""Swish by Triton."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _forward(x, y, n, beta, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    a = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, (a / (1.0 + tl.exp(-beta * a))).to(y.dtype.element_ty), mask=at < n)


@triton.jit
def _backward(dy, x, dx, n, beta, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    g = tl.load(dy + at, mask=at < n, other=0.0).to(tl.float32)
    a = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    e = tl.exp(-beta * a)
    s = 1.0 / (1.0 + e)
    rest = tl.where(e > 1.0, 1.0 - s, e * s)
    tl.store(dx + at, (g * s * (1.0 + beta * a * rest)).to(dx.dtype.element_ty), mask=at < n)


def swish_forward(x: Tensor, y: Tensor, beta: float, *, size: Any) -> None:
    """Write x sigmoid(beta x) into `y`."""
    _forward[(-(-x.numel() // size),)](x, y, x.numel(), beta, SIZE=size)


def swish_backward(dy: Tensor, x: Tensor, dx: Tensor, beta: float, *, size: Any) -> None:
    """Write the gradient at `x` into `dx`."""
    _backward[(-(-x.numel() // size),)](dy, x, dx, x.numel(), beta, SIZE=size)
