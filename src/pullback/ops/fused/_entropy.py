"""Cross-entropy of rows of logits, and its gradient."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import arguments
from ..kernels import cpu
from ._eager import accurate, autocasts, blocks
from ._triton import ready

BLOCK = 1 << 19
"""Elements of a block of logits: what several steps go over one after the other."""
_REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}
"""As the C kernels number them."""


class Options(NamedTuple):
    """What a cross-entropy is made of.

    Args:
        ignore_index: The target of rows that do not count.
        label_smoothing: The share of the target that is spread evenly over all classes.
        soft_cap: c, if logits go through ``c tanh(z / c)`` first.
        z_loss: The factor of the square of the log-sum-exp, which is added.
        reduction: ``"mean"`` over the rows that count, ``"sum"`` or ``"none"``.
    """

    ignore_index: int = -100
    label_smoothing: float = 0.0
    soft_cap: float | None = None
    z_loss: float = 0.0
    reduction: str = "mean"

    @property
    def plain(self) -> bool:
        """Whether the loss is the bare cross-entropy."""
        return not self.label_smoothing and self.soft_cap is None and not self.z_loss


def check_options(op: str, options: Options) -> None:
    """Refuse options out of range."""
    arguments.integer(op, "ignore_index", options.ignore_index)
    arguments.number(op, "label_smoothing", options.label_smoothing, low=0.0, high=1.0)
    arguments.number(op, "z_loss", options.z_loss, low=0.0)
    if options.soft_cap is not None:
        arguments.number(op, "soft_cap", options.soft_cap, kind="a number or None")
        if not options.soft_cap > 0:
            raise ValueError(f"{op}: soft_cap must be positive, or None for none, got {options.soft_cap!r}.")
    arguments.choice(op, "reduction", options.reduction, "mean", "sum", "none")


def check_target(op: str, target: Any, rows: torch.Size) -> None:
    """Refuse a target of another shape or dtype.

    Raises:
        TypeError: for what is no integer tensor.
        ValueError: for another shape.
    """
    if not isinstance(target, Tensor) or target.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        got = f"dtype {target.dtype}" if isinstance(target, Tensor) else f"{type(target).__name__} {target!r}"
        raise TypeError(f"{op}: target must be an integer tensor of class numbers, got {got}.")
    if target.shape != rows:
        raise ValueError(f"{op}: target must have the shape {list(rows)}, one class for each row, got {list(target.shape)}.")


def explain_target(op: str, target: Tensor, classes: int, options: Options) -> None:
    """Say which entry of a target is no class, after torch has refused to look one up.

    Raises:
        IndexError: if there is one.
    """
    if target.device.type == "meta":
        return
    wrong = ((target < 0) | (target >= classes)) & (target != options.ignore_index)
    if wrong.any():
        first = int(target[wrong][0])
        raise IndexError(f"{op}: target must hold classes from 0 to {classes - 1}, or ignore_index {options.ignore_index}; got {first}.") from None


def capped(z: Tensor, options: Options) -> Tensor:
    """The logits that the loss is computed from, in the dtype in which it is."""
    z = z.to(accurate(z))
    return z if options.soft_cap is None else options.soft_cap * torch.tanh(z / options.soft_cap)


def places(target: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """Which rows count, and the class of each as a column; 0 where it does not."""
    counts = target != options.ignore_index
    return counts, torch.where(counts, target, 0).to(torch.int64).unsqueeze(-1)


def losses(logits: Tensor, target: Tensor, options: Options) -> Tensor:
    """The loss of each row of ``[rows, classes]``."""
    z = capped(logits, options)
    counts, at = places(target, options)
    log_p = torch.log_softmax(z, -1)
    loss = -log_p.gather(-1, at).squeeze(-1)
    if options.label_smoothing:
        loss = (1 - options.label_smoothing) * loss - options.label_smoothing * log_p.mean(-1)
    if options.z_loss:
        loss = loss + options.z_loss * torch.logsumexp(z, -1).square()
    return torch.where(counts, loss, 0)


def gradients(logits: Tensor, target: Tensor, scale: Tensor, options: Options) -> Tensor:
    """The gradient of ``sum(scale · losses)`` for the logits, differentiable again."""
    z = capped(logits, options)
    _, at = places(target, options)
    rate = scale
    if options.z_loss:
        rate = scale * (1 + 2 * options.z_loss * torch.logsumexp(z, -1))
    grad = torch.softmax(z, -1) * rate.unsqueeze(-1)
    if options.label_smoothing:
        grad = grad - (scale * (options.label_smoothing / z.shape[-1])).unsqueeze(-1)
    grad = torch.scatter_add(grad, -1, at, ((options.label_smoothing - 1) * scale).unsqueeze(-1))
    return grad if options.soft_cap is None else grad * (1 - (z / options.soft_cap).square())


def loss_now(logits: Tensor, target: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """The reduced loss, and the rows' log-sum-exp where a kernel gives it; nobody may be recording."""
    if takes_c(logits, target, options):
        return _loss_by_c(logits, target, options, options.reduction)
    if options.plain and logits.numel() <= BLOCK and not ready(logits):
        return _nll(logits, target, options, options.reduction), None
    rows, lse = losses_now(logits, target, options)
    return reduced(rows, target, options), lse


def losses_now(logits: Tensor, target: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """The loss of each row, and its log-sum-exp where a kernel gives it; nobody may be recording."""
    if ready(logits):
        from ..kernels import triton_cross_entropy as kernels

        return kernels.losses(logits, target, *options[:4])
    if takes_c(logits, target, options):
        return _loss_by_c(logits, target, options, "none")
    if options.plain:
        each = [_nll(logits[block], target[block], options, "none") for block in blocks(logits, BLOCK)]
    else:
        each = [losses(logits[block], target[block], options) for block in blocks(logits, BLOCK)]
    return torch.cat(each) if each else losses(logits, target, options), None


def has_kernel(logits: Tensor, target: Tensor, options: Options) -> bool:
    """Whether a Triton or C kernel goes over these rows."""
    return ready(logits) or takes_c(logits, target, options)


def takes_c(logits: Tensor, target: Tensor, options: Options) -> bool:
    """Whether a C kernel goes over these rows."""
    return options.soft_cap is None and cpu.usable(logits) and target.dtype == torch.int64 and target.is_contiguous()


def _loss_by_c(logits: Tensor, target: Tensor, options: Options, reduction: str) -> tuple[Tensor, Tensor]:
    rows, classes = logits.shape
    loss, lse, total = logits.new_empty(rows), logits.new_empty(rows), logits.new_empty(())
    wrong = ctypes.c_int32()
    numbers = (classes, options.ignore_index, _REDUCTIONS[reduction], options.label_smoothing, options.z_loss)
    cpu.run("cross_entropy_forward", rows, logits, target, loss, lse, total, ctypes.byref(wrong), *numbers)
    if wrong.value:
        raise IndexError("target holds what is no class")
    return loss if reduction == "none" else total, lse


def _nll(logits: Tensor, target: Tensor, options: Options, reduction: str) -> Tensor:
    log_p = torch.log_softmax(logits.to(accurate(logits)), -1)
    return F.nll_loss(log_p, target if target.dtype == torch.int64 else target.long(), ignore_index=options.ignore_index, reduction=reduction)


def gradient_now(dy: Tensor, logits: Tensor, target: Tensor, options: Options, lse: Tensor | None, out: Tensor) -> Tensor:
    """Write the gradient of the reduced loss into `out`; nobody may be recording."""
    if lse is not None and takes_c(logits, target, options) and cpu.usable(dy):
        _gradients_by_c(logits, target, dy, options, lse, out, options.reduction)
        return out
    return gradients_now(logits, target, scales(dy, target, options, accurate(logits)), options, lse, out)


def gradients_now(logits: Tensor, target: Tensor, scale: Tensor, options: Options, lse: Tensor | None, out: Tensor) -> Tensor:
    """Write the gradient of ``sum(scale · losses)`` into `out`, which may be `logits`; nobody may be recording."""
    if lse is not None and ready(logits):
        from ..kernels import triton_cross_entropy as kernels

        return kernels.gradients(logits, target, scale, lse, *options[:4], out)
    if lse is not None and takes_c(logits, target, options) and cpu.usable(out, scale):
        _gradients_by_c(logits, target, scale, options, lse, out, "none")
        return out
    _, at = places(target, options)
    scale = scale.unsqueeze(-1)
    at_target = scale.neg() if options.plain else scale * (options.label_smoothing - 1)
    if logits.numel() <= BLOCK:
        _gradients_of_block(capped(logits, options), at, scale, at_target, options, out)
        return out
    for block in blocks(logits, BLOCK):
        _gradients_of_block(capped(logits[block], options), at[block], scale[block], at_target[block], options, out[block])
    return out


def _gradients_by_c(logits: Tensor, target: Tensor, dy: Tensor, options: Options, lse: Tensor, out: Tensor, reduction: str) -> None:
    numbers = (logits.shape[1], options.ignore_index, _REDUCTIONS[reduction], options.label_smoothing, options.z_loss)
    cpu.run("cross_entropy_backward", logits.shape[0], logits, target, dy, lse, out, *numbers)


def _gradients_of_block(z: Tensor, at: Tensor, scale: Tensor, at_target: Tensor, options: Options, out: Tensor) -> None:
    rate = scale
    if options.z_loss:
        rate = scale * torch.logsumexp(z, -1, keepdim=True).mul_(2 * options.z_loss).add_(1)
    direct = z.dtype == out.dtype and z.data_ptr() != out.data_ptr()
    grad = (torch.softmax(z, -1, out=out) if direct else torch.softmax(z, -1)).mul_(rate)
    if options.label_smoothing:
        grad.sub_(scale * (options.label_smoothing / z.shape[-1]))
    grad.scatter_add_(-1, at, at_target)
    if options.soft_cap is not None:
        grad.mul_((z / options.soft_cap).square_().neg_().add_(1))
    if not direct:
        out.copy_(grad)


def reduced(rows: Tensor, target: Tensor, options: Options) -> Tensor:
    """The loss from those of the rows: their sum, their mean over rows that count, or themselves."""
    if options.reduction == "none":
        return rows
    total = rows.sum()
    return total if options.reduction == "sum" else total / _count(target, options)


def shaped(loss: Tensor, target: Tensor, options: Options) -> Tensor:
    """The reduced loss as it is, or the rows' losses in the target's shape."""
    return loss.reshape(target.shape) if options.reduction == "none" else loss


def scales(dy: Tensor, target: Tensor, options: Options, dtype: torch.dtype) -> Tensor:
    """What the gradient of each row's loss is multiplied with, from the cotangent of the reduced loss; 0 for rows that do not count."""
    counts = target != options.ignore_index
    rate = dy.to(dtype)
    if options.reduction == "mean":
        rate = rate / counts.sum()
    return torch.where(counts, rate, 0).reshape(-1)


def _count(target: Tensor, options: Options) -> Tensor:
    return (target != options.ignore_index).sum()


def loss_dtype(x: Tensor) -> torch.dtype:
    """The dtype of the loss: x's, and float32 under autocast, as torch's own cross-entropy has it."""
    return accurate(x) if autocasts(x) else x.dtype
