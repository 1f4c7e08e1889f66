"""Elementwise kernels for whatever device the tensors are on."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from . import cpu, gpu


def flat(name: str, *tensors: Tensor, numbers: tuple[float, ...] = (), extra: tuple[Tensor, ...] = ()) -> Tensor | None:
    """Run an elementwise kernel on tensors of one shape; None where it is not there or may not be used.

    Args:
        name: The kernel.
        *tensors: What it reads.
        numbers: Its further arguments.
        extra: Tensors that it reads after its output: a seed.
    """
    if torch.compiler.is_compiling() or (tensors[0].is_cpu and not _any_for_cpu()):
        return None
    if tensors[0].device.type in gpu.DEVICES:
        return gpu.flat(name, tensors, numbers, extra)
    return cpu.flat(name, *tensors, numbers=numbers, extra=extra)


def _any_for_cpu() -> bool:
    return cpu.loaded() or "cpu" in gpu.DEVICES


def factor(number: float, x: Tensor) -> float | Tensor:
    """What to multiply `x` with for its product with a number: a tensor that holds it, where nobody watches, which takes torch less time."""
    if type(number) is float and number and x.is_cpu and x.dtype is torch.float32 and cpu.plain(x):
        return constant(number, torch.float32)
    return number


@functools.lru_cache(256)
def constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor on the CPU, not to be written to: torch takes longer to wrap a number than to multiply 10,000 elements by a tensor.

    A number that `dtype` does not hold is rounded. 0.0 and -0.0 are one number here.
    """
    with torch.inference_mode(False):
        return torch.tensor(value, device="cpu", dtype=torch.float64 if isinstance(value, float) else torch.int64).to(dtype)
