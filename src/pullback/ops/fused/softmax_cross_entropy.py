"""Softmax and cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from . import _entropy as entropy
from ._eager import eager, rows_of


def softmax_cross_entropy_reference(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy in plain torch."""
    z = logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)
    counts = target != ignore_index
    lse = torch.logsumexp(z, -1)
    at_target = z.gather(-1, torch.where(counts, target, 0).unsqueeze(-1)).squeeze(-1)
    rows = lse - (1 - label_smoothing) * at_target - label_smoothing * z.mean(-1) + z_loss * lse**2
    rows = torch.where(counts, rows, 0)
    return rows if reduction == "none" else rows.sum() if reduction == "sum" else rows.sum() / counts.sum()


@op(static=("target",), reference=softmax_cross_entropy_reference)
def softmax_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    z_loss: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross-entropy of ``softmax(logits)`` with class numbers.

    Math:
        For a row z (after ``soft_cap tanh(z / soft_cap)``, if given) with class t among V, smoothing s and lse = log Σ exp(z_j):
        loss = lse - (1 - s) z_t - s mean(z) + z_loss lse². With p = softmax(z): dloss/dz = (1 + 2 z_loss lse) p - (1 - s) onehot(t) - s / V,
        times 1 - (z / soft_cap)² for the cap. p is computed again in backward, block by block.

    Args:
        logits: Floating tensor ``[..., V]``: the classes come last.
        target: Integer tensor ``[...]`` of classes from 0 to V - 1, or `ignore_index`.
        ignore_index: Rows with this target count for nothing.
        label_smoothing: From 0 to 1.
        soft_cap: None, or the positive bound that logits are squeezed under.
        z_loss: The factor of lse², at least 0.
        reduction: ``"mean"`` over the rows that count (NaN if none does, as in torch), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``[...]`` without reduction, in the dtype of `logits`; float32 for half precision under autocast. Half precision is computed in
        float32.

    Saves:
        `logits` and `target`, which are arguments: 0 bytes an element, and one number a row where a C or Triton kernel runs.
        ``F.cross_entropy`` keeps the log-softmax of logits.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for logits that are no floating tensor, or a target that is no integer one.
        ValueError: for a target of another shape, or an option out of range.
        IndexError: for a target that is no class (on CPU; elsewhere nobody looks).

    Example:
        >>> import torch, pullback as pb
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> pb.ops.softmax_cross_entropy(logits, torch.tensor([0, -100]))
        tensor(0.1269)

    References:
        Szegedy et al., Rethinking the inception architecture, 2015, arXiv:1512.00567, section 7 (smoothing); Chowdhery et al., PaLM, 2022,
        arXiv:2204.02311, section 5 (z-loss); Gemma 2, 2024, arXiv:2408.00118, section 2 (soft cap).
    """
    options = entropy.Options(ignore_index, label_smoothing, soft_cap, z_loss, reduction)
    _check(logits, target, options)
    rows, flat, dtype = rows_of(logits), target.reshape(-1), entropy.loss_dtype(logits)
    if not eager(logits):
        return keep(entropy.shaped(entropy.reduced(entropy.losses(rows, flat, options), flat, options), target, options).to(dtype), lse=None)
    try:
        loss, lse = entropy.loss_now(rows, flat, options)
    except (IndexError, RuntimeError):
        entropy.explain_target("softmax_cross_entropy", target, logits.shape[-1], options)
        raise
    return keep(entropy.shaped(loss, target, options).to(dtype), lse=lse)


def _check(logits: Tensor, target: Tensor, options: entropy.Options) -> None:
    name = "softmax_cross_entropy"
    arguments.floating(name, logits=logits)
    if logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(f"{name}: logits must have the shape [..., V] with at least one class, got {list(logits.shape)}.")
    entropy.check_options(name, options)
    entropy.check_target(name, target, logits.shape[:-1])
    arguments.together(name, logits=logits, target=target)


@softmax_cross_entropy.vjp("logits")
def _(
    dy: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    soft_cap: float | None,
    z_loss: float,
    reduction: str,
) -> Tensor:
    options = entropy.Options(ignore_index, label_smoothing, soft_cap, z_loss, reduction)
    rows, flat = rows_of(logits), target.reshape(-1)
    if not eager(dy, logits):
        scale = entropy.scales(dy, target, options, entropy.accurate(logits))
        return entropy.gradients(rows, flat, scale, options).reshape(logits.shape).to(logits.dtype)
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    return entropy.gradient_now(dy.reshape(-1) if dy.dim() > 1 else dy, rows, flat, options, lse, out).reshape(logits.shape)


@softmax_cross_entropy.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 5, dtype=torch.float64, generator=generator)
    target = torch.tensor([0, 3, -100, 4])
    yield sample(logits, target)
    yield sample(logits, target, label_smoothing=0.1, z_loss=0.01, reduction="sum")
    yield sample(logits.reshape(2, 2, 5), torch.tensor([[0, 3], [1, 4]]), soft_cap=4.0, ignore_index=3, reduction="none")
