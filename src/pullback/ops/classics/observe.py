"""Watching a value and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def observe_reference(x: Tensor, callback: Callable[[str, Tensor], Any]) -> Tensor:
    """The same in plain torch, by a hook."""
    callback("value", x.detach())
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda dy: callback("gradient", dy.detach()))
    return y


@op(reference=observe_reference, static=("callback",), linear=("x",))
def observe(x: Tensor, callback: Callable[[str, Tensor], Any]) -> Tensor:
    """Return `x` itself, and show its value and later its gradient to `callback`.

    Math:
        y = x, so dx = dy.

    Args:
        x: Floating tensor, any shape.
        callback: Called as ``callback("value", x)`` at once and as ``callback("gradient", dy)`` in backward. It must change neither; what it
            returns is ignored, and what it raises goes through.

    Returns:
        A view of `x`.

    Saves:
        No tensor.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func (the callback sees a batch where vmap runs), forward
        mode, autocast. torch.compile traces the callback, which must be made of what it can trace.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `callback` that cannot be called.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> y = pb.ops.observe(x, lambda what, tensor: print(what, tensor.tolist()))
        value [1.0, 2.0]
        >>> (y * 3.0).sum().backward()
        gradient [3.0, 3.0]

    References:
        Hooks of torch.Tensor, https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html.
    """
    arguments.floating("observe", x=x)
    if not callable(callback):
        raise TypeError(f"observe: callback must be a function of what it is shown and a tensor, got {type(callback).__name__}.")
    callback("value", x.detach())
    return x.view_as(x)


@observe.vjp("x")
def _(dy: Tensor, callback: Callable[[str, Tensor], Any]) -> Tensor:
    callback("gradient", dy.detach())
    return dy


@observe.jvp
def _(tangents):
    return tangents.x.view_as(tangents.x)


@observe.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-2.0, 2.0, 12, dtype=torch.float64).reshape(3, 4), _nothing)


def _nothing(what: str, tensor: Tensor) -> None:
    pass
