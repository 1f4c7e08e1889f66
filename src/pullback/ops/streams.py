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
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from . import arguments
from .kernels import cpu
from .kernels.elementwise import constant

BLOCK, PAIRED = 1 << 17, 512
PARTS = 64
"""For how many sizes at once memory is kept as views, which cost more than the numbers of a small tensor."""
WEYL, GOLDEN = 0x9E3779B1, 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0x21F0AAAD, 0xD35A2D97 - 2**32
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
    h = (h * _FIRST) ^ (z >> 32).to(torch.int32)[block]
    h = h ^ (h >> 15)
    return (h * _SECOND).reshape(like.shape)


def blocks(seed: int, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the words of `count` places on the CPU block by block: where the block lies, and its words in a buffer that the next block overwrites."""
    for block, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        yield slice(start, start + size), words_of_block(seed, block, size)


def words_of_block(seed: int, block: int, size: int) -> Tensor:
    """The words of the first places of a block, in a buffer that the next call overwrites."""
    part = _scratch.part(size)
    _fill(seed, block, part)
    return part.own_words


def _fill(seed: int, block: int, part: _Part) -> None:
    """Write the words of a part's places into its buffer."""
    word, shifted, (first, second) = part.word, part.shifted, _scratch.keys
    _scratch.key_values[0], _scratch.key_values[1] = keys_of(seed, block)
    torch.add(part.places, first, out=word)
    word.bitwise_xor_(torch.bitwise_right_shift(word, constant(16, torch.int32), out=shifted))
    word.mul_(constant(_FIRST, torch.int32)).bitwise_xor_(second)
    word.bitwise_xor_(torch.bitwise_right_shift(word, constant(15, torch.int32), out=shifted))
    word.mul_(constant(_SECOND, torch.int32))


class _Part(NamedTuple):
    """Memory for the first places of a block: integers for their words, floats for normal numbers, and the halves of these that make up pairs.

    It is rounded up to whole pairs of rows; `own_words` and `own_numbers` are without what that adds.
    """

    places: Tensor
    word: Tensor
    shifted: Tensor
    first_word: Tensor
    second_word: Tensor
    twice: Tensor
    tan: Tensor
    share: Tensor
    first: Tensor
    second: Tensor
    own_words: Tensor
    own_numbers: Tensor


class _Scratch(threading.local):
    """Memory for one block, kept for each thread: a few megabytes that would cost more to clear each time than to fill.

    It is made outside of inference mode, whose tensors could not be written to by others, and whatever the default device and dtype.
    """

    def __init__(self) -> None:
        self.parts: dict[int, _Part] = {}
        self.key_values = array("i", (0, 0))
        with torch.inference_mode(False):
            self.keys = torch.frombuffer(self.key_values, dtype=torch.int32).unbind()

    def part(self, size: int) -> _Part:
        """Memory for `size` places, up to a block."""
        part = self.parts.get(size)
        if part is None:
            if len(self.parts) >= PARTS:
                self.parts.clear()
            with torch.inference_mode(False):
                part = self.parts[size] = self._views(size)
        return part

    @functools.cached_property
    def _memory(self) -> tuple[Tensor, ...]:
        places = (torch.arange(BLOCK, device="cpu") * WEYL).to(torch.int32)
        return places, *torch.empty(2, BLOCK, dtype=torch.int32, device="cpu"), *torch.empty(2, BLOCK, dtype=torch.float32, device="cpu")

    def _views(self, size: int) -> _Part:
        groups = -(-size // (2 * PAIRED))
        places, word, shifted, polar, numbers = (memory[: groups * 2 * PAIRED] for memory in self._memory)
        twice, tan = polar.view(2, groups, PAIRED)
        share = shifted.view(torch.float32).view(2, groups, PAIRED)[0]
        words, pairs = word.view(groups, 2, PAIRED), numbers.view(groups, 2, PAIRED)
        return _Part(places, word, shifted, words[:, 0], words[:, 1], twice, tan, share, pairs[:, 0], pairs[:, 1], word[:size], numbers[:size])


_scratch = _Scratch()


def on_cpu(like: Tensor) -> bool:
    """Whether words may be computed block by block for a tensor like this."""
    return like.is_cpu and cpu.plain(like)


def threshold(p: float) -> int:
    """The least word that a share of ``1 - p`` of all words reaches."""
    return min(round(p * 2**32), 2**32 - 1) - 2**31


def kept(seed: Tensor, p: float, like: Tensor) -> Tensor:
    """A mask in the shape of `like` that is False with probability `p`, for ``p < 1``."""
    if not on_cpu(like):
        return words(seed, like) >= threshold(p)
    return kept_bytes(seed, p, like).view(torch.bool)


def kept_bytes(seed: Tensor, p: float, like: Tensor) -> Tensor:
    """The same on the CPU as bytes of 0 and 1: torch makes them, and numbers of them, several times as fast as bools."""
    least, count = constant(threshold(p), torch.int32), like.numel()
    if count <= BLOCK:
        mask = words_of_block(int(seed), 0, count).ge_(least).to(torch.uint8)
        return mask if like.dim() == 1 else mask.view(like.shape)
    mask = torch.empty(like.shape, dtype=torch.uint8, device="cpu")
    flat = mask.view(-1)
    for where, word in blocks(int(seed), count):
        flat[where] = word.ge_(least)
    return mask


def normal(seed: Tensor, like: Tensor) -> Tensor:
    """Normal numbers, mean 0 and variance 1, in the shape of `like`, by Box and Muller: float64 for a float64 `like`, else float32.

    Places ``i`` and ``i + 512`` of 1,024 are a pair: the one's word gives the radius of both, the other's the angle. None is beyond 5.8.
    """
    if like.dtype == torch.float64 or not on_cpu(like):
        return normal_of_words(seed, like)
    out = torch.empty(like.shape, dtype=torch.float32, device="cpu")
    flat = out.view(-1)
    for where, noise in normal_blocks(int(seed), like.numel()):
        flat[where] = noise
    return out


def normal_blocks(seed: int, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the normal numbers of `count` places on the CPU block by block, in a buffer that the next block overwrites."""
    for block, start in enumerate(range(0, count, BLOCK)):
        size = min(BLOCK, count - start)
        yield slice(start, start + size), normal_of_block(seed, block, size)


def normal_of_block(seed: int, block: int, size: int) -> Tensor:
    """The normal numbers of the first places of a block, in a buffer that the next call overwrites."""
    part = _scratch.part(size)
    _fill(seed, block, part)
    one = constant(1.0, torch.float32)
    twice = torch.add(constant(_MIDDLE, torch.float32), part.twice.copy_(part.first_word), alpha=2.0**-32, out=part.twice)
    twice.log_().mul_(constant(-8.0, torch.float32)).sqrt_()
    # cos a = 2 / (1 + t²) - 1 and sin a = 2 t / (1 + t²) with t = tan(a / 2): one slow function instead of two
    tan = part.tan.copy_(part.second_word).mul_(constant(math.pi * 2.0**-32, torch.float32)).tan_()
    share = torch.div(twice, torch.addcmul(one, tan, tan, out=part.share), out=part.share)
    torch.sub(share, twice, alpha=0.5, out=part.first)
    torch.mul(share, tan, out=part.second)
    return part.own_numbers


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
