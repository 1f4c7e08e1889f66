"""When the Triton kernels are used."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels import gpu
from ._eager import eager

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def ready(x: Tensor, *others: Tensor | None) -> bool:
    """Return whether `x` lies on a device for which there are kernels, in a dtype that they compute in, with nobody recording."""
    return x.device.type in gpu.DEVICES and x.dtype in DTYPES and eager(x, *others) and gpu.installed()
