"""Product and sum in one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments


def muladd_reference(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """The same in plain torch."""
    return w * x + b


@op(reference=muladd_reference, elementwise=True)
def muladd(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """Return ``w · x + b``, elementwise, in one pass over memory.

    Math:
        y = w x + b, so dw = dy x, dx = dy w and db = dy, each summed over the dimensions that were broadcast.

    Args:
        w: Floating tensor.
        x: Floating tensor.
        b: Floating tensor; the three broadcast together.

    Returns:
        A tensor of the broadcast shape.

    Saves:
        `x` for the gradient of `w`, `w` for that of `x`, each only if that gradient is wanted: nothing beyond the arguments, and nothing at all for
        `b`.

    Supports:
        float64, float32, bfloat16, float16, also mixed; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an argument that is no floating tensor.
        ValueError: for shapes that do not broadcast.

    Example:
        >>> import torch, pullback as pb
        >>> w, x, b = torch.tensor(2.0, requires_grad=True), torch.tensor([1.0, 3.0]), torch.tensor(0.5)
        >>> pb.ops.muladd(w, x, b).sum().backward()
        >>> w.grad
        tensor(4.)

    References:
        Griewank and Walther, Evaluating Derivatives, 2nd edition, 2008, chapter 3, doi:10.1137/1.9780898717761.
    """
    arguments.floating("muladd", w=w, x=x, b=b)
    arguments.broadcasts("muladd", w=w, x=x, b=b)
    return torch.addcmul(b, w, x) if w.dtype == x.dtype == b.dtype else w * x + b


@muladd.vjp("w")
def _(dy: Tensor, x: Tensor) -> Tensor:
    return dy * x


@muladd.vjp("x")
def _(dy: Tensor, w: Tensor) -> Tensor:
    return dy * w


@muladd.vjp("b")
def _(dy: Tensor) -> Tensor:
    return dy


@muladd.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-2.0, 3.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x.sin(), x, x.cos())
    yield sample(x[0].sin(), x, x[:, :1].cos())
