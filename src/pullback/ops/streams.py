"""Streams of random words: the word of an element is a function of a seed and of its place, whatever computes it.

The stream is cut into blocks of 131,072 places. Block ``b`` of ``seed`` has two keys, the halves of splitmix64 at ``seed + (b + 1) ·
0x9E3779B97F4A7C15``. The word at place ``i`` of a block is, in 32-bit integers that wrap, with shifts that keep the sign:

    h = i · 0x9E3779B1 + key0;  h = h xor (h >> 16);  h = (h · 0x21F0AAAD) xor key1;  h = h xor (h >> 15);  word = h · 0xD35A2D97

Places count elements in row-major order, so that strides, threads and devices do not matter. The C and Triton kernels compute the same words.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator

import torch
from torch import Tensor

from . import arguments
from .kernels import cpu

BLOCK, PAIRED = 1 << 17, 512
WEYL, GOLDEN = 0x9E3779B1, 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0x21F0AAAD, 0xD35A2D97
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1
_MIDDLE = 0.5 + 2.0**-24  # a float32: with it no word gives 0, whose logarithm is infinite, and none gives more than 1


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


def words(seed: Tensor, like: Tensor, flip: int = 0) -> Tensor:
    """The words of all elements of `like`, in its shape, as int32: torch operations that compilers and transforms can look into.

    Args:
        seed: int64 tensor with one element.
        like: Gives shape and device.
        flip: Bits to flip in the place of each element: its partner's word.
    """
    count = like.numel()
    place = torch.arange(count, device=like.device) ^ flip
    z = seed + (torch.arange((count + BLOCK - 1) // BLOCK, device=like.device) + 1) * _signed(GOLDEN, 64)
    for shift, factor in _MIX:
        z = (z ^ ((z >> shift) & ((1 << (64 - shift)) - 1))) * _signed(factor, 64)
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    block = place // BLOCK
    h = ((place & (BLOCK - 1)) * WEYL + (z & 0xFFFFFFFF)[block]).to(torch.int32)
    h = h ^ (h >> 16)
    h = (h * _signed(_FIRST, 32)) ^ (z >> 32).to(torch.int32)[block]
    h = h ^ (h >> 15)
    return (h * _signed(_SECOND, 32)).reshape(like.shape)


def blocks(seed: int, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the words of `count` places on the CPU block by block: where the block lies, and its words in a buffer that the next block overwrites."""
    table, word, shifted = _scratch.words
    for block, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        if size < BLOCK:
            table, word, shifted = table[:size], word[:size], shifted[:size]
        yield slice(start, start + size), _fill(keys_of(seed, block), table, word, shifted)


def _fill(keys: tuple[int, int], places: Tensor, word: Tensor, shifted: Tensor) -> Tensor:
    """Write the words of `places`, times 0x9E3779B1, into `word`."""
    torch.add(places, keys[0], out=word)
    word.bitwise_xor_(torch.bitwise_right_shift(word, 16, out=shifted)).mul_(_FIRST).bitwise_xor_(keys[1])
    return word.bitwise_xor_(torch.bitwise_right_shift(word, 15, out=shifted)).mul_(_signed(_SECOND, 32))


class _Scratch(threading.local):
    """Memory for one block, kept for each thread: a few megabytes that would cost more to clear each time than to fill."""

    @functools.cached_property
    def words(self) -> tuple[Tensor, Tensor, Tensor]:
        places = (torch.arange(BLOCK) * WEYL).to(torch.int32)
        return places, torch.empty_like(places), torch.empty_like(places)

    @functools.cached_property
    def numbers(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.empty(BLOCK // (2 * PAIRED), PAIRED), torch.empty(BLOCK // (2 * PAIRED), PAIRED), torch.empty(BLOCK)


_scratch = _Scratch()


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
    mask = torch.empty(like.numel(), dtype=torch.bool)
    for where, word in blocks(int(seed), like.numel()):
        torch.ge(word, least, out=mask[where])
    return mask.view(like.shape)


def normal(seed: Tensor, like: Tensor) -> Tensor:
    """Normal numbers, mean 0 and variance 1, in the shape of `like`, by Box and Muller: float64 for a float64 `like`, else float32.

    Places ``i`` and ``i + 512`` of 1,024 are a pair: the one's word gives the radius of both, the other's the angle. None is beyond 5.8.
    """
    if like.dtype == torch.float64 or not on_cpu(like):
        return normal_of_words(seed, like)
    out = torch.empty(like.shape)
    flat = out.view(-1)
    for where, noise in normal_blocks(int(seed), like.numel()):
        flat[where] = noise
    return out


def normal_blocks(seed: int, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the normal numbers of `count` places on the CPU block by block, in a buffer that the next block overwrites."""
    table, word, shifted = _scratch.words
    radius, angle, out = _scratch.numbers
    for block, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        groups = -(-size // (2 * PAIRED))
        if (whole := 2 * PAIRED * groups) < BLOCK:
            table, word, shifted, out, radius, angle = table[:whole], word[:whole], shifted[:whole], out[:whole], radius[:groups], angle[:groups]
        pairs, numbers = _fill(keys_of(seed, block), table, word, shifted).view(groups, 2, PAIRED), out.view(groups, 2, PAIRED)
        radius.copy_(pairs[:, 0]).mul_(2.0**-32).add_(_MIDDLE).log_().mul_(-2).sqrt_()
        angle.copy_(pairs[:, 1]).mul_(math.tau * 2.0**-32)
        torch.mul(radius, torch.cos(angle, out=shifted[: groups * PAIRED].view(torch.float32).view(groups, PAIRED)), out=numbers[:, 0])
        torch.mul(radius, angle.sin_(), out=numbers[:, 1])
        yield slice(start, start + size), out[:size]


def normal_of_words(seed: Tensor, like: Tensor) -> Tensor:
    """The same by torch operations that compilers and transforms can look into: each place computes its partner's word too."""
    place = torch.arange(like.numel(), device=like.device).reshape(like.shape)
    word, partner = words(seed, like), words(seed, like, flip=PAIRED)
    first = place & PAIRED == 0
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32  # of numbers that float32 holds, so that all dtypes get the same noise
    radius = torch.where(first, word, partner).to(torch.float32).mul(2.0**-32).add(_MIDDLE).to(wide).log().mul(-2).sqrt()
    angle = torch.where(first, partner, word).to(torch.float32).to(wide).mul(math.tau * 2.0**-32)
    return radius * torch.where(first, angle.cos(), angle.sin())


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
