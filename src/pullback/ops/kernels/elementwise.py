"""Elementwise kernels for whatever device the tensors are on."""

from __future__ import annotations

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
    if torch.compiler.is_compiling():
        return None
    if tensors[0].device.type in gpu.DEVICES:
        return gpu.flat(name, tensors, numbers, extra)
    return cpu.flat(name, *tensors, numbers=numbers, extra=extra)
