"""SwiGLU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu
from ._eager import blocks, eager, silu_backward
from ._triton import ready

LARGE, BLOCK = 1 << 21, 1 << 18
"""Elements from which on both gradients are made block by block, and those of a block."""


def swiglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU in plain torch."""
    return gate * torch.sigmoid(gate) * up


@op(reference=swiglu_reference, elementwise=True)
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``silu(gate) · up``, the gated unit between the two halves of a transformer's feed-forward layer.

    Math:
        y = g s u with s = sigmoid(g), so dy/dg = u s (1 + g (1 - s)) and dy/du = g s. The product g s is computed again in backward.

    Args:
        gate: Floating tensor ``[..., n]``: the projection that goes through SiLU.
        up: The other projection; broadcasts with `gate`.

    Returns:
        A tensor of the broadcast shape and the wider of the two dtypes.

    Saves:
        `gate` and `up`, which are arguments; plain torch also keeps silu(gate).

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an argument that is no floating tensor.
        ValueError: for shapes that do not broadcast.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.swiglu(torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 3.0]))
        tensor([-0.2689,  0.0000,  5.2848])

    References:
        Shazeer, GLU variants improve transformer, 2020, arXiv:2002.05202.
    """
    arguments.floating("swiglu", gate=gate, up=up)
    arguments.broadcasts("swiglu", gate=gate, up=up)
    if gate.shape == up.shape:
        if gate.dtype is up.dtype and ready(gate, up) and _packed(gate, up):
            from ..kernels import triton_swiglu as kernels

            return kernels.forward(gate, up)
        fast = cpu.flat("swiglu_forward", gate, up)
        if fast is not None:
            return fast
    silu = F.silu(gate)
    if silu.shape == up.shape and silu.dtype == up.dtype and eager(gate, up):
        return silu.mul_(up)
    return silu * up


@swiglu.vjp("gate", "up", keeps={"gate": ("up",), "up": ()})
def _(dy: Tensor, gate: Tensor, up: Tensor | None, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    if up is not None and _alike(dy, gate, up) and eager(dy, gate, up):
        if cpu.usable(dy, gate, up):
            grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
            cpu.run("swiglu_backward", dy.numel(), dy, gate, up, grad_gate, grad_up)
            return grad_gate, grad_up
        if all(wanted):
            return _both(dy, gate, up)
    grad_up = dy * F.silu(gate) if wanted[1] else None
    if not wanted[0] or up is None:
        return None, grad_up
    return silu_backward(dy * up, gate.expand_as(dy).to(dy.dtype)), grad_up


def _alike(first: Tensor, second: Tensor, third: Tensor) -> bool:
    """Whether all have one shape and dtype."""
    return first.shape == second.shape == third.shape and first.dtype is second.dtype is third.dtype


def _packed(*tensors: Tensor) -> bool:
    """Whether all can be walked through as one row."""
    return all(tensor.is_contiguous() for tensor in tensors)


def _both(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients of plain tensors of one shape and dtype."""
    if ready(dy, gate, up) and _packed(dy, gate, up):
        from ..kernels import triton_swiglu as kernels

        return kernels.backward(dy, gate, up)
    if dy.numel() > LARGE and _packed(dy, gate, up):
        return _by_blocks(dy, gate, up)
    product = dy * up
    return torch.ops.aten.silu_backward.grad_input(product, gate, grad_input=product), F.silu(gate).mul_(dy)


def _by_blocks(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
    rows = [t.view(-1) for t in (dy, gate, up, grad_gate, grad_up)]
    for block in blocks(rows[0], BLOCK):
        d, g, u, dg, du = (row[block] for row in rows)
        torch.ops.aten.silu.out(g, out=du)
        du.mul_(d)
        torch.ops.aten.silu_backward.grad_input(torch.mul(d, u), g, grad_input=dg)
    return grad_gate, grad_up


@swiglu.samples
def _() -> Iterator[Sample]:
    gate = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    up = torch.linspace(1.5, -2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(gate, up)
    yield sample(gate, up[0])
