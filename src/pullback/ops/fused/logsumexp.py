"""Log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu
from ._eager import blocks, eager, rows_of

BLOCK, SMALL, NARROW = 1 << 20, 1 << 16, 32
"""Elements that are gone through at once, and the number of elements and length of rows below which torch's own log-sum-exp is as fast."""


def logsumexp_reference(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Log-sum-exp in plain torch."""
    top = x.amax(dim, keepdim=True).detach()
    top = torch.where(top.isfinite(), top, 0)
    return ((x - top).exp().sum(dim, keepdim=True).log() + top) if keepdim else (x - top).exp().sum(dim).log() + top.squeeze(dim)


@op(reference=logsumexp_reference)
def logsumexp(x: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Return ``log(sum(exp(x)))`` over one dimension, without overflow.

    Math:
        y = log Σ exp(x_i), so dy/dx_i = exp(x_i - y): the softmax. It is computed anew in backward, since x_i - y has few digits left where both are
        large. Rows of -inf only have y = -inf and gradient 0.

    Args:
        x: Floating tensor with at least one dimension, of size at least 1 along `dim`.
        dim: The dimension to sum over.
        keepdim: Whether it stays, with size 1.

    Returns:
        A tensor of x's dtype without dimension `dim`, or with it at size 1.

    Saves:
        `x` and the output: nothing of the size of `x` beyond it.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, a `dim` that is no integer, or a `keepdim` that is no bool.
        IndexError: for a `dim` that x does not have.
        ValueError: for a size of 0 along `dim`.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.logsumexp(torch.tensor([1000.0, 1000.0]))
        tensor(1000.6932)

    References:
        Blanchard, Higham and Higham, Accurately computing the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41(4), 2021,
        doi:10.1093/imanum/draa038.
    """
    arguments.floating("logsumexp", x=x)
    arguments.dimension("logsumexp", "dim", dim, x)
    arguments.flag("logsumexp", "keepdim", keepdim)
    if x.shape[dim] == 0:
        raise ValueError(f"logsumexp: x must have a size of at least 1 along dim {dim}, got shape {list(x.shape)}.")
    if _last(x, dim) and cpu.usable(x):
        out = x.new_empty((*x.shape[:-1], 1) if keepdim else x.shape[:-1])
        cpu.run("logsumexp_forward", out.numel(), x, out, x.shape[-1])
        return out
    out = _by_rows(x) if x.numel() >= SMALL and _in_rows(x, dim) else None
    if out is None:
        return torch.logsumexp(x, dim, keepdim)
    return out.reshape(*x.shape[:-1], 1) if keepdim else out.reshape(x.shape[:-1])


@logsumexp.vjp("x")
def _(dy: Tensor, x: Tensor, out: Tensor, dim: int, keepdim: bool) -> Tensor:
    if not keepdim:
        dy, out = dy.unsqueeze(dim), out.unsqueeze(dim)
    if x.device.type == "cpu" and eager(dy, x) and _finite(out):
        if _last(x, dim) and cpu.usable(x):
            grad, dy = torch.empty_like(x), dy.contiguous()
            cpu.run("logsumexp_backward", dy.numel(), dy, x, grad, x.shape[-1])
            return grad
        return _shares(x, dy) if x.numel() > BLOCK and _in_rows(x, dim) else torch.softmax(x, dim).mul_(dy)
    nothing = out == -torch.inf
    return dy * torch.softmax(x.masked_fill(nothing, 0), dim).masked_fill(nothing, 0)


@logsumexp.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, dim=0, keepdim=True)


def _last(x: Tensor, dim: int) -> bool:
    return dim in (-1, x.dim() - 1)


def _in_rows(x: Tensor, dim: int) -> bool:
    """Whether rows are long enough for `_by_rows` and lie one after the other."""
    long = _last(x, dim) and x.shape[-1] >= NARROW
    return long and x.device.type == "cpu" and x.dtype is torch.float32 and x.is_contiguous() and eager(x)


def _by_rows(x: Tensor) -> Tensor | None:
    """Log-sum-exp over the last dimension by 2^x, which torch computes three times as fast as e^x. None for infinities and NaN."""
    rows, found = rows_of(x), []
    for block in blocks(rows, BLOCK):
        top = rows[block].amax(-1, keepdim=True)
        if not _finite(top):
            return None
        found.append(torch.sub(rows[block], top).mul_(1 / math.log(2)).exp2_().sum(-1, keepdim=True).log_().add_(top))
    return found[0] if len(found) == 1 else torch.cat(found)


def _shares(x: Tensor, dy: Tensor) -> Tensor:
    """dy softmax(x) over the last dimension, block by block."""
    grad, rates = torch.empty_like(x), dy.reshape(-1, 1)
    rows, out = rows_of(x), rows_of(grad)
    for block in blocks(rows, BLOCK):
        torch.softmax(rows[block], -1, out=out[block]).mul_(rates[block])
    return grad


def _finite(x: Tensor) -> bool:
    """Whether all elements are finite; False also where their sum is not."""
    return math.isfinite(x.sum().item())
