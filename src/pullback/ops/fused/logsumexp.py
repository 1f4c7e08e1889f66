"""Log-sum-exp."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ._eager import eager


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
    return torch.logsumexp(x, dim, keepdim)


@logsumexp.vjp("x")
def _(dy: Tensor, x: Tensor, out: Tensor, dim: int, keepdim: bool) -> Tensor:
    if not keepdim:
        dy, out = dy.unsqueeze(dim), out.unsqueeze(dim)
    nothing = out == -torch.inf
    if x.device.type == "cpu" and eager(dy, x) and not nothing.any():
        return torch.softmax(x, dim).mul_(dy)
    return dy * torch.softmax(x.masked_fill(nothing, 0), dim).masked_fill(nothing, 0)


@logsumexp.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, dim=0, keepdim=True)
