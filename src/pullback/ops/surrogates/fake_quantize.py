"""Quantisation and dequantisation with a straight-through gradient and a learned scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments

_HALVES = (torch.bfloat16, torch.float16)


def fake_quantize_reference(
    x: Tensor,
    scale: float | Tensor,
    low: int = -128,
    high: int = 127,
    *,
    zero_point: float | Tensor = 0,
    axis: int | None = None,
    gradient_scale: float | Literal["lsq"] = 1.0,
) -> Tensor:
    """Fake quantisation in plain torch, with the usual detours around gradients."""
    wide, given = x.float() if x.dtype in _HALVES else x, scale
    scale, zero_point = _aligned(scale, x, axis), _aligned(zero_point, x, axis)
    if isinstance(scale, Tensor):
        factor = _factor(gradient_scale, x, _channels(given, axis), high)
        scale = scale * factor + (scale - scale * factor).detach()
    ratio = (wide / scale + zero_point).clamp(low, high)
    return (((ratio + (ratio.round() - ratio).detach()) - zero_point) * scale).to(x.dtype)


@op(reference=fake_quantize_reference, static=("low", "high", "zero_point", "axis", "gradient_scale"))
def fake_quantize(
    x: Tensor,
    scale: float | Tensor,
    low: int = -128,
    high: int = 127,
    *,
    zero_point: float | Tensor = 0,
    axis: int | None = None,
    gradient_scale: float | Literal["lsq"] = 1.0,
) -> Tensor:
    """Return `x` quantised to whole steps of `scale` and scaled back, with gradients for `x` and `scale`.

    Math:
        With r = x / s + z and q = round(clamp(r, low, high)), y = (q - z) s. Rounding counts as the identity (straight through), so dx = dy where
        low <= r <= high, else 0; ds = g · sum of dy (q - r) inside, and of dy (q - z) outside, which is LSQ's gradient of the step size.

    Args:
        x: Floating tensor, any shape; half precision is quantised in float32.
        scale: The step: a positive number, a tensor with one element, or with `axis` a tensor of shape ``[x.shape[axis]]``.
        low: The least level.
        high: The greatest level.
        zero_point: The level of zero: a number, or a tensor shaped as `scale`. It is not differentiated.
        axis: The dimension of channels that have a step of their own; None for one step.
        gradient_scale: Factor g of the scale's gradient; ``"lsq"`` for ``1 / sqrt(n · high)`` with n values for each step.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`, and `scale` and `zero_point` where they are tensors: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, levels that are no integers, or a step that is neither a number nor a floating tensor.
        ValueError: for a number as step that is not positive, ``low >= high``, a `scale` or `zero_point` of another shape, or an unknown
            `gradient_scale`.
        IndexError: for an `axis` that `x` does not have.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-0.4, 0.13, 3.0], requires_grad=True)
        >>> step = torch.tensor(0.1, requires_grad=True)
        >>> y = pb.ops.fake_quantize(x, step, -8, 7)
        >>> y
        tensor([-0.4000,  0.1000,  0.7000], grad_fn=<fake_quantizeBackward>)
        >>> y.sum().backward()
        >>> x.grad, step.grad
        (tensor([1., 1., 0.]), tensor(6.7000))

    References:
        Esser, McKinstry, Bablani, Appuswamy and Modha, Learned step size quantization, 2020, arXiv:1902.08153, equations 1 to 5.
    """
    _check(x, scale, low, high, zero_point, axis, gradient_scale)
    wide = x.float() if x.dtype in _HALVES else x
    scale, zero_point = _aligned(scale, x, axis), _aligned(zero_point, x, axis)
    levels = (wide / scale).add_(zero_point).clamp(low, high).round_()
    return levels.sub_(zero_point).mul_(scale).to(x.dtype)


@fake_quantize.surrogate
def _(x, scale, low, high, zero_point, axis, gradient_scale):
    return fake_quantize_reference(x, scale, low, high, zero_point=zero_point, axis=axis, gradient_scale=gradient_scale)


@fake_quantize.vjp("x", "scale")
def _(dy, x, scale, low, high, zero_point, axis, gradient_scale, wanted):
    wide = x.float() if x.dtype in _HALVES else x
    step, zero = _aligned(scale, x, axis), _aligned(zero_point, x, axis)
    ratio = wide / step + zero
    inside = (ratio >= low) & (ratio <= high)
    dx = dy * inside if wanted[0] else None
    if not wanted[1]:
        return dx, None
    levels = ratio.clamp(low, high).round()
    slopes = dy * torch.where(inside, levels - ratio, levels - zero).detach()  # constants, since rounding counts as the identity
    axis = _channels(scale, axis)
    total = slopes.sum() if axis is None else slopes.sum([dim for dim in range(x.dim()) if dim != axis % x.dim()])
    return dx, (total * _factor(gradient_scale, x, axis, high)).to(scale.dtype).reshape(scale.shape)


@fake_quantize.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.13, 1.97, 24, dtype=torch.float64).reshape(4, 6)
    step = torch.tensor(0.29, dtype=torch.float64)
    yield sample(x, step, -4, 3)
    yield sample(x, step.expand(4) * torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64), -4, 3, axis=0, gradient_scale="lsq")
    yield sample(x, 0.3, 0, 7, zero_point=3)


def _aligned(value: float | Tensor, x: Tensor, axis: int | None) -> float | Tensor:
    """One value for all of `x`, or one for each index along `axis`."""
    if not isinstance(value, Tensor):
        return value
    if axis is None or value.dim() == 0:
        return value.reshape(())
    return value.reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])


def _channels(scale: float | Tensor, axis: int | None) -> int | None:
    """The dimension along which there are several steps, if there is one: a scale without dimensions is one step beside an axis too."""
    return axis if isinstance(scale, Tensor) and scale.dim() else None


def _factor(given: float | str, x: Tensor, axis: int | None, high: int) -> float:
    if given != "lsq":
        return float(given)
    count = x.numel() if axis is None else x.numel() // max(x.shape[axis], 1)
    return 1 / max(count * high, 1) ** 0.5


def _check(x, scale, low, high, zero_point, axis, gradient_scale) -> None:
    name = "fake_quantize"
    arguments.floating(name, x=x)
    arguments.integer(name, "low", low)
    arguments.integer(name, "high", high, low=low + 1)
    if axis is not None:
        arguments.dimension(name, "axis", axis, x)
    if isinstance(scale, Tensor):
        arguments.floating(name, scale=scale)
        _check_shape("scale", scale, x, axis)
    else:
        arguments.number(name, "scale", scale, kind="a number or a floating tensor")
        if not scale > 0:
            raise ValueError(f"{name}: scale must be positive, got {scale!r}.")
    arguments.together(name, x=x, scale=scale, zero_point=zero_point)
    if isinstance(zero_point, Tensor):
        arguments.real(name, "zero_point", zero_point)
        _check_shape("zero_point", zero_point, x, axis)
    else:
        arguments.number(name, "zero_point", zero_point, kind="a number or a tensor")
    if isinstance(gradient_scale, str):
        if gradient_scale != "lsq":
            raise ValueError(f"{name}: gradient_scale must be a number or 'lsq', got {gradient_scale!r}.")
    else:
        arguments.number(name, "gradient_scale", gradient_scale, kind="a number or 'lsq'")


def _check_shape(argument: str, value: Tensor, x: Tensor, axis: int | None) -> None:
    if axis is None and value.numel() != 1:
        hint = " Say with axis=... which dimension has a step of its own." if value.dim() == 1 else ""
        raise ValueError(f"fake_quantize: {argument} must have one element, got the shape {list(value.shape)}.{hint}")
    if axis is not None and value.dim() != 0:
        arguments.shape("fake_quantize", argument, value, x.shape[axis])
