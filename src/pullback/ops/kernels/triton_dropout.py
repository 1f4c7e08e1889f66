"""Dropout by Triton: the mask from the seed, as `pullback.ops.streams` says."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

PLACES = tl.constexpr(131072)
"""Places of a block of the stream; the elements of a program lie in one block, since their number divides it."""


@triton.jit
def _mixed(seed, block):
    z = seed.to(tl.uint64) + (block + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _shift(h, by: tl.constexpr):
    return (h.to(tl.int32, bitcast=True) >> by).to(tl.uint32, bitcast=True)


@triton.jit
def _words(place, first, second):
    h = place.to(tl.uint32) * 0x9E3779B1 + first
    h = h ^ _shift(h, 16)
    h = (h * 0x21F0AAAD) ^ second
    h = h ^ _shift(h, 15)
    return (h * 0xD35A2D97).to(tl.int32, bitcast=True)


@triton.jit
def _dropout(x, y, seed, n, threshold, scale, SIZE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * SIZE
    at = start + tl.arange(0, SIZE)
    keys = _mixed(tl.load(seed), start // PLACES)
    word = _words((start % PLACES).to(tl.int32) + tl.arange(0, SIZE), keys.to(tl.uint32), (keys >> 32).to(tl.uint32))
    a = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + at, (a * tl.where(word >= threshold, scale, 0.0)).to(y.dtype.element_ty), mask=at < n)


def dropout(x: Tensor, y: Tensor, seed: Tensor, threshold: int, scale: float, *, size: Any) -> None:
    """Write the kept elements of `x`, times `scale`, into `y`."""
    _dropout[(-(-x.numel() // size),)](x, y, seed, x.numel(), threshold, scale, SIZE=size)
