"""SwiGLU by Triton: one walk over memory in each direction."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZE: Any = 1024


@triton.jit
def _forward(gate, up, y, n, size: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    g = tl.load(gate + at, mask=at < n, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, (g * tl.sigmoid(g) * u).to(y.dtype.element_ty), mask=at < n)


@triton.jit
def _backward(dy, gate, up, grad_gate, grad_up, n, size: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    d = tl.load(dy + at, mask=at < n, other=0.0).to(tl.float32)
    g = tl.load(gate + at, mask=at < n, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(grad_gate + at, (d * u * s * (1.0 + g * (1.0 - s))).to(grad_gate.dtype.element_ty), mask=at < n)
    tl.store(grad_up + at, (d * g * s).to(grad_up.dtype.element_ty), mask=at < n)


def forward(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) · up`` for contiguous tensors of one shape and dtype."""
    y, n = torch.empty_like(gate), gate.numel()
    if n:
        with torch.cuda.device_of(gate):
            _forward[(-(-n // SIZE),)](gate, up, y, n, size=SIZE)
    return y


def backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients, for contiguous tensors of one shape and dtype."""
    grad_gate, grad_up, n = torch.empty_like(gate), torch.empty_like(up), gate.numel()
    if n:
        with torch.cuda.device_of(gate):
            _backward[(-(-n // SIZE),)](dy, gate, up, grad_gate, grad_up, n, size=SIZE)
    return grad_gate, grad_up
