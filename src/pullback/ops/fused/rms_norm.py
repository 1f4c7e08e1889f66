"""Root-mean-square norm."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ..kernels import cpu
from ._eager import accurate, blocks, eager, rows_of
from ._triton import ready

WIDEST = 1 << 15
"""The longest row that the Triton kernel holds at once."""
BLOCK, PARTS = 1 << 16, 64
"""Elements that are gone through at once, and in how many runs of rows the C kernel sums at most."""


def rms_norm_reference(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Root-mean-square norm in plain torch."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


@op(reference=rms_norm_reference)
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """Return `x` divided by its root mean square over the last dimension, times `weight`.

    Math:
        y = x r w with r = (mean(x²) + eps)^(-1/2) for each row of n, so dr/dx = -r³ x / n. With g = dy w:
        dx = r (g - x r² mean(g x)) and dw = dy x r summed over rows.

    Args:
        x: Floating tensor ``[..., n]``.
        weight: ``[n]``, or None for ones.
        eps: Added under the root.

    Returns:
        A tensor of x's shape and dtype. Half precision is computed in float32.

    Saves:
        `x`, `weight` where x needs a gradient, and r: one number (float32 for half precision) for each row.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an argument that is no floating tensor, or an `eps` that is no number.
        ValueError: for a weight of another shape, or a negative `eps`.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.rms_norm(torch.tensor([3.0, -4.0]), torch.tensor([1.0, 2.0]))
        tensor([ 0.8485, -2.2627])

    References:
        Zhang and Sennrich, Root mean square layer normalization, 2019, arXiv:1910.07467.
    """
    _check(x, weight, eps)
    if ready(x, weight) and x.shape[-1] <= WIDEST:
        from ..kernels import triton_rms_norm as kernels

        y, r = kernels.forward(rows_of(x), weight, eps)
        return keep(y.reshape(x.shape), r=r.reshape(*x.shape[:-1], 1))
    if cpu.usable(x) and (weight is None or cpu.usable(weight)):
        y, r = torch.empty_like(x), x.new_empty((*x.shape[:-1], 1))
        cpu.run("rms_norm_forward", r.numel(), x, weight, y, r, x.shape[-1], eps)
        return keep(y, r=r)
    wide = accurate(x)
    if eager(x, weight):
        r = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide).square_().mul_(1 / max(1, x.shape[-1])).add_(eps).rsqrt_()
        y = x * r if weight is None else (x * r).mul_(weight)
        return keep(y.to(x.dtype), r=r)
    r = torch.linalg.vecdot(x.to(wide), x.to(wide)).unsqueeze(-1).div(x.shape[-1]).add(eps).rsqrt()
    y = (x * r) if weight is None else (x * r) * weight
    return keep(y.to(x.dtype), r=r)


def _check(x: Tensor, weight: Tensor | None, eps: float) -> None:
    arguments.floating("rms_norm", x=x)
    arguments.number("rms_norm", "eps", eps, low=0.0)
    if x.dim() == 0:
        raise ValueError("rms_norm: x must have at least one dimension, got a scalar.")
    if weight is not None:
        arguments.floating("rms_norm", weight=weight)
        arguments.shape("rms_norm", "weight", weight, x.shape[-1])
        arguments.together("rms_norm", x=x, weight=weight)


@rms_norm.vjp("x", "weight", keeps={"x": ("weight",), "weight": ()})
def _(dy: Tensor, x: Tensor, weight: Tensor | None, r: Tensor, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    if wanted[0] and x.shape[-1] <= WIDEST and ready(x, dy, weight, r):
        from ..kernels import triton_rms_norm as kernels

        grad_x, grad_weight = kernels.backward(rows_of(dy), rows_of(x), weight, r.reshape(-1))
        return grad_x.reshape(x.shape), grad_weight if wanted[1] else None
    if wanted[0] and cpu.usable(dy, x, r) and (weight is None or cpu.usable(weight)):
        grad_x, grad_weight = _by_c(dy, x, weight, r)
        return grad_x, grad_weight if wanted[1] else None
    if all(wanted) and weight is not None and dy.dtype == x.dtype == weight.dtype == r.dtype and eager(dy, x, weight, r):
        return _both(dy, x, weight, r)
    wide = r.dtype
    scaled, dy = x.to(wide) * r, dy.to(wide)
    grad_weight = rows_of(dy * scaled).sum(0) if wanted[1] else None
    if not wanted[0]:
        return None, grad_weight
    g = dy if weight is None else dy * weight.to(wide)
    grad_x = (g - scaled * (g * scaled).mean(-1, keepdim=True)) * r
    return grad_x.to(x.dtype), grad_weight


def _by_c(dy: Tensor, x: Tensor, weight: Tensor | None, r: Tensor) -> tuple[Tensor, Tensor]:
    n, rows = x.shape[-1], r.numel()
    parts = max(1, min(PARTS, rows * n // BLOCK))
    grad_x, sums = torch.empty_like(x), x.new_zeros((parts, n))
    cpu.run("rms_norm_backward", rows, dy, x, x.new_ones(n) if weight is None else weight, r, grad_x, sums, n, parts)
    return grad_x, sums.sum(0)


def _both(dy: Tensor, x: Tensor, weight: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients, block by block: each of dy and x is read once from memory."""
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    d, a, s, out = (rows_of(t) for t in (dy, x, r, grad_x))
    if x.numel() <= BLOCK:
        return grad_x, _block(d, a, s, out, weight)
    grad_weight = torch.zeros_like(weight)
    for block in blocks(d, BLOCK):
        grad_weight += _block(d[block], a[block], s[block], out[block], weight)
    return grad_x, grad_weight


def _block(dy: Tensor, x: Tensor, r: Tensor, grad_x: Tensor, weight: Tensor) -> Tensor:
    """Write the gradient of some rows of x, and return what they add to that of the weight."""
    product = dy * x
    mean = torch.mv(product, weight).unsqueeze(-1).mul_(r).mul_(r)
    torch.mul(dy, weight, out=grad_x).addcmul_(x, mean, value=-1 / max(1, x.shape[-1])).mul_(r)
    return torch.mv(product.t(), r.squeeze(-1))


@rms_norm.vjp("x", of="r")
def _(dr: Tensor, x: Tensor, r: Tensor) -> Tensor:
    return (-dr * r**3 * x.to(r.dtype) / x.shape[-1]).to(x.dtype)


@rms_norm.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 6, dtype=torch.float64, generator=generator), torch.rand(6, dtype=torch.float64, generator=generator) + 0.5
    yield sample(x, weight)
    yield sample(x, eps=1e-3)
    yield sample(x.reshape(1, 3, 6), weight)
