"""Linear layer and cross-entropy, in chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from . import _chunked as chunked
from . import _entropy as entropy
from . import _products as products
from ._eager import eager
from .softmax_cross_entropy import softmax_cross_entropy_reference


def linear_cross_entropy_reference(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    z_loss: float = 0.0,
    reduction: str = "mean",
    recompute: bool = False,
) -> Tensor:
    """A linear layer and cross-entropy in plain torch."""
    return softmax_cross_entropy_reference(
        F.linear(x, weight, bias),
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        soft_cap=soft_cap,
        z_loss=z_loss,
        reduction=reduction,
    )


@op(static=("target",), reference=linear_cross_entropy_reference)
def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    soft_cap: float | None = None,
    z_loss: float = 0.0,
    reduction: str = "mean",
    recompute: bool = False,
) -> Tensor:
    """Return the cross-entropy of ``softmax(x weightᵀ + bias)`` with class numbers; the logits are never there all at once.

    Math:
        The loss of a row and its gradient dz for the row's logits are those of ``softmax_cross_entropy``; dx = dz weight, dweight = dzᵀ x and
        dbias = Σ dz over rows. Rows go through in chunks: logits, loss, dz and the three products of one chunk, then the next. Since the cotangent of
        a reduced loss is one number, the gradients are made in forward, where the logits are at hand, and multiplied with it in backward.

    Args:
        x: Floating tensor ``[..., in]``.
        weight: ``[V, in]``, x's dtype.
        target: Integer tensor ``[...]`` of classes from 0 to V - 1, or `ignore_index`.
        bias: ``[V]``, x's dtype, or None.
        ignore_index: Rows with this target count for nothing.
        label_smoothing: From 0 to 1.
        soft_cap: None, or the positive bound that logits are squeezed under.
        z_loss: The factor of the squared log-sum-exp, at least 0.
        reduction: ``"mean"`` over the rows that count (NaN if none does, as in torch), ``"sum"`` or ``"none"``.
        recompute: Keep no gradients, and compute logits again in backward: less memory between forward and backward, and one matrix product more. So
            it is without reduction anyway.

    Returns:
        A scalar, or ``[...]`` without reduction, in x's dtype; float32 for half precision under autocast. Half precision is computed in float32 from
        logits in half precision, and summed into dweight in float32.

    Saves:
        `x`, `weight`, `bias` and `target`, which are arguments, and the gradients that are wanted, of the sizes of `x`, `weight` and `bias`;
        nothing beyond the arguments with `recompute`. Nothing of the size rows × V.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for arguments that are no floating tensors, dtypes that differ outside of autocast, a target that is no integer
            tensor, or a `recompute` that is no bool.
        ValueError: for shapes that do not fit, or an option out of range.
        IndexError: for a target that is no class (on CPU; elsewhere nobody looks).

    Example:
        >>> import torch, pullback as pb
        >>> x, weight = torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.eye(2)
        >>> pb.ops.linear_cross_entropy(x, weight, torch.tensor([0, 1]))
        tensor(0.4100)

    References:
        Hsu et al., Liger Kernel, 2024, arXiv:2410.10989, section 3.2; Wijmans et al., Cut your losses in large-vocabulary language models, 2024,
        arXiv:2411.09009.
    """
    options = entropy.Options(ignore_index, label_smoothing, soft_cap, z_loss, reduction)
    _check(x, weight, target, bias, options, recompute)
    wanted = [tensor is not None and tensor.requires_grad for tensor in (x, weight, bias)]
    try:
        if recompute or reduction == "none" or not any(wanted) or not eager(x, weight, bias):
            return keep(chunked.loss(x, weight, target, bias, options), grad_x=None, grad_weight=None, grad_bias=None)
        loss, grads = chunked.loss_and_gradients(x, weight, target, bias, options, wanted)
        return keep(loss, grad_x=grads[0], grad_weight=grads[1], grad_bias=grads[2])
    except (IndexError, RuntimeError):
        _explain(x, weight, target, options)
        raise


@linear_cross_entropy.inference
def _(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    soft_cap: float | None,
    z_loss: float,
    reduction: str,
    recompute: bool,
) -> Tensor:
    options = entropy.Options(ignore_index, label_smoothing, soft_cap, z_loss, reduction)
    _check(x, weight, target, bias, options, recompute)
    try:
        return chunked.loss(x, weight, target, bias, options)
    except (IndexError, RuntimeError):
        _explain(x, weight, target, options)
        raise


def _check(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: entropy.Options, recompute: bool) -> None:
    name = "linear_cross_entropy"
    products.check(name, x, weight, bias)
    if weight.shape[0] == 0:
        raise ValueError(f"{name}: weight must have the shape [V, in] with at least one class, got {list(weight.shape)}.")
    entropy.check_options(name, options)
    arguments.flag(name, "recompute", recompute)
    entropy.check_target(name, target, x.shape[:-1])
    arguments.together(name, x=x, target=target)


def _explain(x: Tensor, weight: Tensor, target: Tensor, options: entropy.Options) -> None:
    if eager(x.detach()):
        entropy.explain_target("linear_cross_entropy", target, weight.shape[0], options)


@linear_cross_entropy.vjp("x", "weight", "bias", keeps={"x": ("grad_x",), "weight": ("grad_weight",), "bias": ("grad_bias",)})
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    grad_x: Tensor | None,
    grad_weight: Tensor | None,
    grad_bias: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    soft_cap: float | None,
    z_loss: float,
    reduction: str,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, ...]:
    made = (grad_x, grad_weight, grad_bias)
    options = entropy.Options(ignore_index, label_smoothing, soft_cap, z_loss, reduction)
    if not eager(dy, x, weight, bias):
        return chunked.gradients(dy, x, weight, target, bias, options, wanted)
    if any(flag and grad is None for flag, grad in zip(wanted, made, strict=True)):
        return chunked.gradients_now(dy, x, weight, target, bias, options, wanted)
    return tuple([grad * dy.to(grad.dtype) if flag and grad is not None else None for flag, grad in zip(wanted, made, strict=True)])


@linear_cross_entropy.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((4, 3), (5, 3), (5,)))
    target = torch.tensor([0, 3, -100, 4])
    yield sample(x, weight, target, bias)
    yield sample(x, weight, target, label_smoothing=0.1, z_loss=0.01, soft_cap=4.0, reduction="sum", recompute=True)
    yield sample(x.reshape(2, 2, 3), weight, torch.tensor([[0, 3], [1, 4]]), bias, ignore_index=3, reduction="none")
