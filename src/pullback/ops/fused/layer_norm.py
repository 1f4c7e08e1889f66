"""Layer norm."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ._eager import accurate, eager, rows_of


def layer_norm_reference(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Layer norm in plain torch."""
    centred = x - x.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@op(reference=layer_norm_reference)
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return `x` brought to mean 0 and variance 1 over the last dimension, times `weight`, plus `bias`.

    Math:
        y = h w + b with h = (x - m) r, m = mean(x), r = (mean((x - m)²) + eps)^(-1/2) for each row. With g = dy w:
        dx = r (g - mean(g) - h mean(g h)), dw = dy h and db = dy, both summed over rows.

    Args:
        x: Floating tensor ``[..., n]``.
        weight: ``[n]``, or None for ones.
        bias: ``[n]``, or None for zeros.
        eps: Added under the root.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`, `weight` where x needs a gradient, and m and r: two numbers for each row, where x or weight needs one.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an argument that is no floating tensor, or an `eps` that is no number.
        ValueError: for a weight or bias of another shape, or a negative `eps`.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.layer_norm(torch.tensor([1.0, 2.0, 3.0]))
        tensor([-1.2247,  0.0000,  1.2247])

    References:
        Ba, Kiros and Hinton, Layer normalization, 2016, arXiv:1607.06450.
    """
    arguments.floating("layer_norm", x=x)
    arguments.number("layer_norm", "eps", eps, low=0.0)
    if x.dim() == 0:
        raise ValueError("layer_norm: x must have at least one dimension, got a scalar.")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            arguments.floating("layer_norm", **{name: value})
            arguments.shape("layer_norm", name, value, x.shape[-1])
    arguments.together("layer_norm", x=x, weight=weight, bias=bias)
    shape = (x.shape[-1],)
    alike = all(value is None or value.dtype == x.dtype for value in (weight, bias))
    if alike and (x.device.type != "cpu" or accurate(x) == x.dtype):
        y, m, r = torch.native_layer_norm(x, shape, weight, bias, eps)
        return keep(y, m=m, r=r)
    # On CPU the kernel would keep m and r in half precision, on CUDA it takes no float32 weight beside it, as there is under autocast.
    wide = accurate(x)
    w, b = (None if value is None else value.to(wide) for value in (weight, bias))
    y, m, r = torch.native_layer_norm(x.to(wide), shape, w, b, eps)
    return keep(y.to(x.dtype), m=m, r=r)


@layer_norm.vjp("x", "weight", "bias", keeps={"x": ("x", "weight", "m", "r"), "weight": ("x", "m", "r"), "bias": ()})
def _(
    dy: Tensor, x: Tensor | None, weight: Tensor | None, m: Tensor | None, r: Tensor | None, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if x is None or m is None or r is None:
        return None, None, rows_of(dy).sum(0)
    alike = x.dtype == dy.dtype and (weight is None or weight.dtype == x.dtype) and (x.dtype == r.dtype or x.is_cuda)
    if wanted[0] and alike and eager(dy, x, weight, m, r):
        # The kernel wants to see a weight and a bias where it is to return their gradients, and fails on CPU without x's.
        seen = x.new_empty(x.shape[-1]) if weight is None else weight
        return torch.ops.aten.native_layer_norm_backward(dy, x, (x.shape[-1],), m, r, weight, seen if wanted[2] else None, wanted)
    dy, h = dy.to(r.dtype), (x - m) * r
    grad_weight = rows_of(dy * h).sum(0) if wanted[1] else None
    grad_bias = rows_of(dy).sum(0) if wanted[2] else None
    if not wanted[0]:
        return None, grad_weight, grad_bias
    g = dy if weight is None else dy * weight.to(r.dtype)
    grad_x = r * (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True))
    return grad_x.to(x.dtype), grad_weight, grad_bias


@layer_norm.vjp("x", of="m")
def _(dm: Tensor, x: Tensor) -> Tensor:
    return (dm / x.shape[-1]).expand(x.shape).to(x.dtype)


@layer_norm.vjp("x", of="r")
def _(dr: Tensor, x: Tensor, m: Tensor, r: Tensor) -> Tensor:
    return (-dr * r**3 * (x - m) / x.shape[-1]).to(x.dtype)


@layer_norm.samples
def _() -> Iterator[Sample]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 6), (6,), (6,)))
    yield sample(x, weight, bias)
    yield sample(x)
    yield sample(x.reshape(1, 3, 6), weight, eps=1e-3)
