"""The Triton kernels as functions of tensors, and when they may be used."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from . import cpu

DEVICES = ["cuda"]
SIZE = 1024
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HOMES = {
    "swish_forward": "triton_swish",
    "swish_backward": "triton_swish",
    "gelu_tanh_forward": "triton_gelu",
    "gelu_tanh_backward": "triton_gelu",
    "dropout": "triton_dropout",
}


def flat(name: str, tensors: tuple[Tensor, ...], numbers: tuple[float, ...], extra: tuple[Tensor, ...]) -> Tensor | None:
    """Run an elementwise kernel on tensors of one shape; None where there is none or it may not be used."""
    if name not in _HOMES or not installed() or not cpu.plain(*tensors):
        return None
    first = tensors[0]
    for tensor in tensors:
        if tensor.dtype not in _DTYPES or tensor.dtype is not first.dtype or tensor.device != first.device or not tensor.is_contiguous():
            return None
    out = torch.empty_like(first)
    if first.numel():
        with torch.cuda.device_of(first):  # does nothing on other devices
            _kernel(name)(*tensors, out, *extra, *numbers, size=SIZE)
    return out


@functools.cache
def _kernel(name: str) -> Any:
    return getattr(importlib.import_module(f".{_HOMES[name]}", __package__), name)


@functools.cache
def installed() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None
