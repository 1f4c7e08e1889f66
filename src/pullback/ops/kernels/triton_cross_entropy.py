"""Cross-entropy of rows of logits, and its gradient, by Triton: logits are read once for the loss, and once more for the gradient."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _capped(z, cap, CAPPED: tl.constexpr):
    if CAPPED:
        # tanh, which Triton has on some devices only
        e = tl.exp(-2.0 * tl.abs(z) / cap)
        z = tl.where(z < 0, -cap, cap) * (1.0 - e) / (1.0 + e)
    return z


@triton.jit
def _losses(
    logits, target, loss, lse, classes, stride, ignored, smoothing, cap, z_loss, CAPPED: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(target + row)
    top = float("-inf")
    total = 0.0
    plain = 0.0
    for start in range(0, classes, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = column < classes
        z = _capped(tl.load(logits + column, mask=inside, other=0.0).to(tl.float32), cap, CAPPED)
        plain += tl.sum(tl.where(inside, z, 0.0), axis=0)
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, axis=0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(z - base), axis=0)
        top = higher
    log_sum = tl.where(top == float("-inf"), 0.0, top) + tl.log(total)
    counts = label != ignored
    at_label = _capped(tl.load(logits + tl.where(counts, label, 0)).to(tl.float32), cap, CAPPED)
    value = log_sum - (1.0 - smoothing) * at_label + z_loss * log_sum * log_sum
    if smoothing != 0.0:
        value -= smoothing * plain / classes
    tl.store(lse + row, log_sum)
    tl.store(loss + row, tl.where(counts, value, 0.0))


@triton.jit
def _gradients(
    logits, target, scale, lse, out, classes, stride, out_stride, ignored, smoothing, cap, z_loss, CAPPED: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    out += row * out_stride
    label = tl.load(target + row)
    factor = tl.load(scale + row).to(tl.float32)
    log_sum = tl.load(lse + row)
    counts = label != ignored
    rate = 1.0 + 2.0 * z_loss * log_sum
    for start in range(0, classes, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = column < classes
        z = _capped(tl.load(logits + column, mask=inside, other=0.0).to(tl.float32), cap, CAPPED)
        grad = rate * tl.exp(z - log_sum) - smoothing / classes - tl.where(column == label, 1.0 - smoothing, 0.0)
        if CAPPED:
            grad *= 1.0 - (z / cap) * (z / cap)
        grad = tl.where(counts, grad * factor, 0.0)
        tl.store(out + column, grad.to(out.dtype.element_ty), mask=inside)


def losses(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, soft_cap: float | None, z_loss: float) -> tuple[Tensor, Tensor]:
    """The loss and the log-sum-exp of each row of ``[rows, classes]``, in float32."""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, classes = logits.shape
    loss, lse = torch.empty((2, rows), dtype=torch.float32, device=logits.device).unbind()
    if not rows:
        return loss, lse
    options = (ignore_index, label_smoothing, soft_cap or 1.0, z_loss)
    with torch.cuda.device_of(logits):
        _losses[(rows,)](logits, target.contiguous(), loss, lse, classes, logits.stride(0), *options, **_tile(classes, soft_cap))
    return loss, lse


def gradients(
    logits: Tensor,
    target: Tensor,
    scale: Tensor,
    lse: Tensor,
    ignore_index: int,
    label_smoothing: float,
    soft_cap: float | None,
    z_loss: float,
    out: Tensor,
) -> Tensor:
    """Write the gradient of ``sum(scale · losses)`` for the logits into `out`, which may be `logits`."""
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    rows, classes = logits.shape
    if not rows:
        return out
    options = (ignore_index, label_smoothing, soft_cap or 1.0, z_loss)
    strides = (logits.stride(0), out.stride(0))
    with torch.cuda.device_of(logits):
        _gradients[(rows,)](logits, target.contiguous(), scale.contiguous(), lse, out, classes, *strides, *options, **_tile(classes, soft_cap))
    return out


def _tile(classes: int, soft_cap: float | None) -> dict[str, Any]:
    width = min(1 << 13, triton.next_power_of_2(classes))
    return {"CAPPED": soft_cap is not None, "WIDTH": width, "num_warps": max(4, min(16, width // 512))}
