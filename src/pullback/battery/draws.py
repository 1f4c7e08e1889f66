"""Random draws that do not depend on what was drawn before: one stream for each check, one for each result that several checks share."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

from .meter import Meter

R = TypeVar("R")


class Drawing(Protocol):
    """What draws: its generator, and the seed and name that every stream of it starts from."""

    generator: torch.Generator

    @property
    def meter(self) -> Meter: ...

    @property
    def origin(self) -> tuple[str, ...]: ...


def stream(*names: str) -> torch.Generator:
    """Return a new generator whose draws follow from the names alone."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


@contextmanager
def drawing(probe: Drawing, name: str) -> Iterator[None]:
    """Let the probe draw from the start of a stream of its own meanwhile, and then go on where it was."""
    before, probe.generator = probe.generator, stream(*probe.origin, name)
    try:
        yield
    finally:
        probe.generator = before


def shared(compute: Callable[[Any], R]) -> functools.cached_property[R]:
    """Return a cached property that draws the same whoever asks for it first, and is charged to nobody.

    A check alone then says what it says among all others.
    """

    @functools.wraps(compute)
    def of_its_own_stream(probe: Drawing) -> R:
        with drawing(probe, compute.__name__), probe.meter.free():
            return compute(probe)

    return functools.cached_property(of_its_own_stream)
