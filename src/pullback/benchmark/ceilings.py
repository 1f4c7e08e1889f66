"""What this machine can do: bytes copied and products computed in a second, measured in turn with the contenders."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from .measure import Probe, Times

PRODUCT = 512
FLOPS = 2 * PRODUCT**3


def copy_probe(moved: int, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Return a probe that moves `moved` bytes by a plain copy: half of them read, half written."""
    source = torch.ones(max(1, moved // 8), device=device)
    target = torch.zeros_like(source)
    return _repeated(lambda: target.copy_(source), device, clock)


def product_probe(dtype: torch.dtype, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Return a probe that multiplies square matrices: `FLOPS` operations."""
    a = torch.full((PRODUCT, PRODUCT), 0.5, dtype=dtype, device=device)
    out = torch.empty_like(a)
    return _repeated(lambda: torch.mm(a, a, out=out), device, clock)


def _repeated(call: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> Probe:
    if device.type == "cuda":
        from .cuda import repeated

        return repeated(call)

    def run(count: int) -> Times:
        start = clock()
        for _ in range(count):
            call()
        return (clock() - start) / count, 0.0

    return run
