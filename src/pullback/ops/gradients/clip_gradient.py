"""Gradient clipping at one place of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def clip_gradient_reference(x: Tensor, *, value: float | None = None, norm: float | None = None, dim: int | Sequence[int] | None = None) -> Tensor:
    """Gradient clipping in plain torch, by a hook."""
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda dy: _clipped(dy, value, norm, dim))
    return y


@op(reference=clip_gradient_reference, static=("value", "norm", "dim"))
def clip_gradient(x: Tensor, *, value: float | None = None, norm: float | None = None, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return `x` itself, with a gradient that is limited: each element to ``[-value, value]``, or its 2-norm to `norm`.

    Math:
        y = x. Declared instead of its derivative: dx = clamp(dy, -value, value), or dx = dy · min(1, norm / ||dy||). Neither is linear in dy. Second
        derivatives are those of these formulas; forward mode is that of y = x.

    Args:
        x: Floating tensor, any shape.
        value: Largest absolute value of an element of the gradient, or None.
        norm: Largest 2-norm of the gradient, or None. Exactly one of the two is given.
        dim: For `norm`: the dimensions over which it is taken, one norm for each index of the others; None for all.

    Returns:
        A view of `x`.

    Saves:
        Nothing.

    Supports:
        float64, float32, bfloat16, float16 (norms in float32); CPU and CUDA; second derivatives, torch.func (vmap takes a norm for each example),
        forward mode, torch.compile, autocast. A gradient with an infinite norm becomes zero or NaN: see `zero_nan_gradient`.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a limit that is no number.
        ValueError: where not exactly one of `value` and `norm` is given, a limit is not positive, or `dim` is given with `value`.
        IndexError: for a `dim` that `x` does not have.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.zeros(2, requires_grad=True)
        >>> (torch.tensor([3.0, 4.0]) * pb.ops.clip_gradient(x, norm=1.0)).sum().backward()
        >>> x.grad
        tensor([0.6000, 0.8000])

    References:
        Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, 2013, arXiv:1211.5063, section 3.2.
    """
    _check(x, value, norm, dim)
    return x.view_as(x)


@clip_gradient.vjp("x", exact=False, linear=False, reason="clipping limits the gradient")
def _(dy: Tensor, value: float | None, norm: float | None, dim: int | Sequence[int] | None) -> Tensor:
    return _clipped(dy, value, norm, dim)


@clip_gradient.jvp
def _(tangents):
    return tangents.x.view_as(tangents.x)


@clip_gradient.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, value=0.5)
    yield sample(x, norm=0.75)
    yield sample(x, norm=0.75, dim=1)


def _clipped(dy: Tensor, value: float | None, norm: float | None, dim: int | Sequence[int] | None) -> Tensor:
    if value is not None:
        return dy.clamp(-value, value)
    wide = torch.float32 if dy.dtype in (torch.bfloat16, torch.float16) else dy.dtype
    size = torch.linalg.vector_norm(dy, dim=dim, keepdim=True, dtype=wide)
    return (dy * (norm / size.clamp(min=norm))).to(dy.dtype)


def _check(x: Tensor, value: float | None, norm: float | None, dim: int | Sequence[int] | None) -> None:
    name = "clip_gradient"
    arguments.floating(name, x=x)
    if (value is None) == (norm is None):
        raise ValueError(f"{name}: give either value or norm, got value={arguments.shown(value)} and norm={arguments.shown(norm)}.")
    for limit, given in (("value", value), ("norm", norm)):
        if given is not None:
            arguments.number(name, limit, given, kind="a number or None")
            if not given > 0:
                raise ValueError(f"{name}: {limit} must be positive, got {given!r}.")
    if dim is not None and norm is None:
        raise ValueError(f"{name}: dim goes with norm; value limits each element by itself.")
    for one in (dim,) if isinstance(dim, int) else dim or ():
        arguments.dimension(name, "dim", one, x)
