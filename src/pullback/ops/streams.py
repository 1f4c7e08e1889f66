"""Streams of random words: the word of an element is a function of a seed and of its place, whatever computes it.

The stream is cut into blocks of 65,536 places. Block ``b`` of ``seed`` has two keys, the halves of splitmix64 at ``seed + (b + 1) ·
0x9E3779B97F4A7C15``. The word at place ``i`` of a block is, in 32-bit integers that wrap, with shifts that keep the sign:

    h = i · 0x9E3779B1 + key0;  h = h + (h >> 16);  h = (h · 0x21F0AAAD) xor key1;  h = h + (h >> 15);  word = h · 0xD35A2D97

Places count elements in row-major order, so that strides, threads and devices do not matter. The C and Triton kernels compute the same words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from . import arguments
from .kernels import cpu

BLOCK = 1 << 16
WEYL, GOLDEN = 0x9E3779B1, 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0x21F0AAAD, 0xD35A2D97
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1


def drawn(like: Tensor) -> Tensor:
    """A fresh seed from torch's generator, which `torch.manual_seed` sets: int64 with one element, on the device of `like`."""
    return torch.randint(2**62, (), device=like.device)


def given(op: str, seed: int | Tensor, like: Tensor) -> Tensor:
    """A seed that the caller gave, as a tensor.

    Raises:
        TypeError: for what is neither an integer nor an int64 tensor.
        ValueError: for a tensor of more than one element.
    """
    if isinstance(seed, Tensor):
        if seed.dtype != torch.int64:
            raise TypeError(f"{op}: seed must be an integer or a tensor of dtype torch.int64, got dtype {seed.dtype}.")
        if seed.numel() != 1:
            raise ValueError(f"{op}: seed must have one element, got shape {list(seed.shape)}.")
        return seed.reshape(()).to(like.device)
    arguments.integer(op, "seed", seed, -(2**63), 2**63 - 1)
    return torch.tensor(seed, dtype=torch.int64, device=like.device)


def keys_of(seed: int, block: int) -> tuple[int, int]:
    """The two keys of a block, as signed 32-bit integers."""
    z = (seed + (block + 1) * GOLDEN) & _WORD
    for shift, factor in _MIX:
        z = ((z ^ (z >> shift)) * factor) & _WORD
    z ^= z >> 31
    return _signed(z, 32), _signed(z >> 32, 32)


def words(seed: Tensor, like: Tensor) -> Tensor:
    """The words of all elements of `like`, in its shape, as int32: torch operations that compilers and transforms can look into."""
    count = like.numel()
    place = torch.arange(count, device=like.device)
    z = seed + (torch.arange((count + BLOCK - 1) // BLOCK, device=like.device) + 1) * _signed(GOLDEN, 64)
    for shift, factor in _MIX:
        z = (z ^ ((z >> shift) & ((1 << (64 - shift)) - 1))) * _signed(factor, 64)
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    block = place >> 16
    h = ((place & (BLOCK - 1)) * WEYL + (z & 0xFFFFFFFF)[block]).to(torch.int32)
    h = h + (h >> 16)
    h = (h * _signed(_FIRST, 32)) ^ (z >> 32).to(torch.int32)[block]
    h = h + (h >> 15)
    return (h * _signed(_SECOND, 32)).reshape(like.shape)


def blocks(seed: int, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the words of `count` places on the CPU block by block: where the block lies, and its words in a buffer that the next block overwrites."""
    table = _table()
    h, shifted = torch.empty_like(table), torch.empty_like(table)
    for block, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        first, second = keys_of(seed, block)
        h, shifted = h[:size], shifted[:size]
        torch.add(table[:size], first, out=h)
        h.add_(torch.bitwise_right_shift(h, 16, out=shifted)).mul_(_FIRST).bitwise_xor_(second)
        h.add_(torch.bitwise_right_shift(h, 15, out=shifted)).mul_(_signed(_SECOND, 32))
        yield slice(start, start + size), h


@functools.cache
def _table() -> Tensor:
    return (torch.arange(BLOCK) * WEYL).to(torch.int32)


def on_cpu(like: Tensor) -> bool:
    """Whether words may be computed block by block for a tensor like this."""
    return cpu.plain(like) and like.device.type == "cpu"


def threshold(p: float) -> int:
    """The least word that a share of ``1 - p`` of all words reaches."""
    return round(p * 2**32) - 2**31


def kept(seed: Tensor, p: float, like: Tensor) -> Tensor:
    """A mask in the shape of `like` that is False with probability `p`, for ``p < 1``."""
    least = threshold(p)
    if not on_cpu(like):
        return words(seed, like) >= least
    mask = torch.empty(like.shape, dtype=torch.bool)
    flat = mask.view(-1)
    for where, word in blocks(int(seed), like.numel()):
        torch.ge(word, least, out=flat[where])
    return mask


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
