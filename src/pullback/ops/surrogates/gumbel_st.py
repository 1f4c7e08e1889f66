"""Samples from a categorical distribution as one-hot tensors, with the gradient of Gumbel-softmax."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ._softmax import one_hot_of_greatest, softmax_vjp


def gumbel_st_reference(logits: Tensor, tau: float = 1.0, hard: bool = True, dim: int = -1) -> Tensor:
    """Straight-through Gumbel-softmax in plain torch, with the usual detour around its gradient."""
    soft = torch.softmax((logits + _noise(logits)) / tau, dim)
    return soft + (one_hot_of_greatest(soft, dim) - soft).detach() if hard else soft


@op(reference=gumbel_st_reference, static=("tau", "hard", "dim"))
def gumbel_st(logits: Tensor, tau: float = 1.0, hard: bool = True, dim: int = -1) -> Tensor:
    """Return a random one-hot choice along a dimension, with probabilities ``softmax(logits)`` and the gradient of Gumbel-softmax.

    Math:
        p = softmax((logits + g) / tau) with g = -log(e), e exponentially distributed: its greatest element is one drawn from softmax(logits).
        y = onehot(argmax p), or p itself where `hard` is false. Declared for both: dlogits = p (dy - sum(p dy)) / tau, p's own derivative.

    Args:
        logits: Floating tensor, any shape of at least one dimension.
        tau: Positive temperature; the lower, the closer p is to one-hot.
        hard: Whether the choice is returned, or the soft sample p.
        dim: The dimension of the choices.

    Returns:
        A tensor of the shape and dtype of `logits`. The noise is drawn in float32 from torch's generator, the same for every dtype and any strides.

    Saves:
        p, as many bytes as `logits`; nothing beyond the output where `hard` is false.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order of p, torch.func (vmap with a choice of randomness), forward mode,
        torch.compile, autocast, checkpointing.

    Raises:
        TypeError: for `logits` that are no floating tensor, a `tau` that is no number, or a `hard` that is no bool.
        ValueError: for a `tau` that is not positive.
        IndexError: for a `dim` that `logits` do not have.

    Example:
        >>> import torch, pullback as pb
        >>> _ = torch.manual_seed(0)
        >>> logits = torch.tensor([0.0, 5.0, 0.0], requires_grad=True)
        >>> pb.ops.gumbel_st(logits).detach()
        tensor([0., 1., 0.])

    References:
        Jang, Gu and Poole, Categorical reparameterization with Gumbel-softmax, 2017, arXiv:1611.01144, section 2.2;
        Maddison, Mnih and Teh, The concrete distribution, 2017, arXiv:1611.00712.
    """
    arguments.floating("gumbel_st", logits=logits)
    arguments.dimension("gumbel_st", "dim", dim, logits)
    arguments.number("gumbel_st", "tau", tau)
    if not tau > 0:
        raise ValueError(f"gumbel_st: tau must be positive, got {tau!r}.")
    arguments.flag("gumbel_st", "hard", hard)
    p = torch.softmax((logits + _noise(logits)) / tau, dim)
    return keep(one_hot_of_greatest(p, dim) if hard else p, p=p)


@gumbel_st.surrogate
def _(logits: Tensor, tau: float, hard: bool, dim: int) -> Tensor:
    return gumbel_st_reference(logits, tau, False, dim)


@gumbel_st.vjp("p")
def _(dy: Tensor) -> Tensor:
    return dy


@gumbel_st.vjp("logits", of="p")
def _(dp: Tensor, p: Tensor, tau: float, dim: int) -> Tensor:
    return softmax_vjp(dp, p, dim) / tau


@gumbel_st.samples
def _() -> Iterator[Sample]:
    logits = torch.linspace(-3.0, 4.0, 15, dtype=torch.float64).sin().reshape(3, 5)
    yield sample(logits, 0.7)
    yield sample(logits, hard=False, dim=0)


def _noise(logits: Tensor) -> Tensor:
    """Gumbel noise; a draw of exactly zero, of which float32 has some, would be an infinite one."""
    drawn = torch.empty_like(logits, dtype=torch.float32, memory_format=torch.contiguous_format).exponential_()
    return -drawn.clamp(min=torch.finfo(torch.float32).tiny).log().to(logits.dtype)
