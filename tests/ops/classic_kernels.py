"""The Triton kernels of the classics against float64, on CUDA or, as a script under TRITON_INTERPRET=1, on CPU.

``TRITON_INTERPRET=1 python tests/ops/classic_kernels.py`` runs every function of `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

import pullback as pb
from pullback.ops import streams
from pullback.ops.kernels import gpu

ROUNDINGS = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
SIZES = (0, 1, 1023, 1025, 5000)


def agree(op: Callable[..., Any], device: str, **options: Any) -> int:
    """Forward and backward in each dtype against the op's reference in float64 on the CPU; how often kernels ran."""
    runs = 0
    reference = op.__pullback__["reference"]  # type: ignore[attr-defined]
    for dtype, rounding in ROUNDINGS.items():
        for size in SIZES:
            x = torch.linspace(-9, 9, size).to(device, dtype).requires_grad_()
            dy = torch.linspace(-1, 2, size).to(device, dtype)
            with mock.patch.object(gpu, "_kernel", wraps=gpu._kernel) as used:
                y = op(x, **options)
                (dx,) = torch.autograd.grad(y, x, dy)
            runs += used.call_count
            wide = x.detach().cpu().double().requires_grad_()
            want = reference(wide, **options)
            (grad,) = torch.autograd.grad(want, wide, dy.cpu().double())
            for got, exact in ((y, want), (dx, grad)):
                error = (got.detach().cpu().double() - exact.detach()).abs() / exact.detach().abs().clamp(min=1)
                assert got.dtype == dtype
                assert not size or float(error.max()) <= rounding, f"{op}, {dtype}, {size}: {float(error.max()):.3g}"
    return runs


def swish(device: str) -> int:
    return agree(pb.ops.swish, device, beta=-1.75)


def gelu(device: str) -> int:
    return agree(pb.ops.gelu, device, approximate="tanh")


def dropout(device: str) -> int:
    """Also the mask itself, across a block of the stream, for seeds of either sign."""
    for seed in (0, -5, 2**62):
        for n in (7, 131072 + 2000):
            got = pb.ops.dropout(torch.ones(n, device=device), 0.3, seed=seed)
            mask = streams.kept(torch.tensor(seed), 0.3, torch.empty(n, dtype=torch.float64))
            assert torch.equal(got.cpu() != 0, mask), f"another mask for the seed {seed} and {n} elements"
    return agree(pb.ops.dropout, device, p=0.3, seed=3)


CHECKS = (swish, gelu, dropout)

if __name__ == "__main__":
    gpu.DEVICES.append("cpu")
    for check in CHECKS:
        print(f"{check.__name__}: kernels ran {check('cpu')} times")
