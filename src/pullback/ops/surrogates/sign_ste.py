"""Binarisation with a straight-through gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu, elementwise


def sign_ste_reference(x: Tensor) -> Tensor:
    """Binarisation in plain torch, with the usual detour around its gradient."""
    soft = x.clamp(-1, 1)
    return soft + (2 * (x >= 0).to(x.dtype) - 1 - soft).detach()


@op(reference=sign_ste_reference, elementwise=True)
def sign_ste(x: Tensor) -> Tensor:
    """Return 1 where ``x >= 0`` and -1 elsewhere, with the gradient of ``clamp(x, -1, 1)``.

    Math:
        y = 1 for x >= 0, else -1: there is no zero among the values, as binary networks need it. Its derivative is zero wherever it exists.
        Declared instead: dx = dy for -1 <= x <= 1, else 0, so that weights which are far out already are not driven further.

    Args:
        x: Floating tensor, any shape. NaN compares as false and gives -1.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-3.0, -0.5, 0.0, 2.0], requires_grad=True)
        >>> y = pb.ops.sign_ste(x)
        >>> y
        tensor([-1., -1.,  1.,  1.], grad_fn=<sign_steBackward>)
        >>> y.sum().backward()
        >>> x.grad
        tensor([0., 1., 1., 0.])

    References:
        Hubara, Courbariaux, Soudry, El-Yaniv and Bengio, Binarized neural networks, 2016, arXiv:1602.02830, equation 4.
    """
    arguments.floating("sign_ste", x=x)
    fast = elementwise.flat("sign_ste_forward", x)
    if fast is not None:
        return fast
    if cpu.plain(x):
        return torch.ge(x, 0, out=torch.empty_like(x)).mul_(2).sub_(1)  # in x's dtype, since torch reads and writes bools one by one
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


@sign_ste.surrogate
def _(x: Tensor) -> Tensor:
    return x.clamp(-1, 1)


@sign_ste.vjp("x")
def _(dy: Tensor, x: Tensor) -> Tensor:
    fast = elementwise.flat("sign_ste_backward", dy, x)
    if fast is not None:
        return fast
    return x.abs().le_(1).mul_(dy) if cpu.plain(dy, x) else dy * (x.abs() <= 1)


@sign_ste.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-2.1, 2.3, 12, dtype=torch.float64).reshape(3, 4))
