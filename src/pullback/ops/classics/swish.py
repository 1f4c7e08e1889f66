"""Swish."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import elementwise

_silu_backward = torch.ops.aten.silu_backward.default


def swish_reference(x: Tensor, beta: float | Tensor = 1.0) -> Tensor:
    """Swish in plain torch."""
    return x * torch.sigmoid(beta * x)


@op(reference=swish_reference, elementwise=True)
def swish(x: Tensor, beta: float | Tensor = 1.0) -> Tensor:
    """Return ``x · sigmoid(beta x)``, also called SiLU where beta is 1.

    Math:
        y = x s with s = sigmoid(beta x), so dy/dx = s + beta x s (1 - s) = s + beta y (1 - s) and dy/dbeta = x² s (1 - s).

    Args:
        x: Floating tensor, any shape.
        beta: A number, or a floating tensor that broadcasts with `x` and then gets its gradient.

    Returns:
        A tensor of the broadcast shape and x's dtype.

    Saves:
        `x`, and `beta` where it is a tensor: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a `beta` that is neither a number nor one.
        ValueError: for shapes that do not broadcast.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
        >>> pb.ops.swish(x)
        tensor([-0.2689,  0.0000,  1.7616], grad_fn=<swishBackward>)

    References:
        Ramachandran, Zoph and Le, Searching for activation functions, 2017, arXiv:1710.05941.
    """
    arguments.floating("swish", x=x)
    if isinstance(beta, Tensor):
        arguments.floating("swish", beta=beta)
        arguments.broadcasts("swish", x=x, beta=beta)
        return x * torch.sigmoid(beta * x)
    arguments.number("swish", "beta", beta, kind="a number or a floating tensor")
    if beta == 1:
        return torch.nn.functional.silu(x)
    fast = elementwise.flat("swish_forward", x, numbers=(beta,))
    return x * torch.sigmoid(beta * x) if fast is None else fast


@swish.vjp("x")
def _(dy: Tensor, x: Tensor, beta: float | Tensor) -> Tensor:
    if not isinstance(beta, Tensor):
        if beta == 1 and not torch.is_grad_enabled():
            return _silu_backward(dy, x)  # fused, and has no derivative of its own
        fast = elementwise.flat("swish_backward", dy, x, numbers=(beta,))
        if fast is not None:
            return fast
    s = torch.sigmoid(beta * x)
    return dy * (s + beta * x * s * (1 - s))


@swish.vjp("beta")
def _(dy: Tensor, x: Tensor, beta: float | Tensor) -> Tensor:
    s = torch.sigmoid(beta * x)
    return dy * x * x * s * (1 - s)


@swish.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, 1.5)
    yield sample(x, torch.tensor([0.5, -1.0, 1.25, 2.0], dtype=torch.float64))
