"""The greatest element as a one-hot tensor, with the gradient of softmax."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ._softmax import one_hot_of_greatest, softmax_vjp


def argmax_onehot_ste_reference(x: Tensor, dim: int = -1, temperature: float = 1.0) -> Tensor:
    """One-hot argmax in plain torch, with the usual detour around its gradient."""
    soft = torch.softmax(x / temperature, dim)
    return soft + (one_hot_of_greatest(x, dim) - soft).detach()


@op(reference=argmax_onehot_ste_reference, static=("dim", "temperature"))
def argmax_onehot_ste(x: Tensor, dim: int = -1, temperature: float = 1.0) -> Tensor:
    """Return 1 at the greatest element along a dimension and 0 elsewhere, with the gradient of softmax.

    Math:
        y = onehot(argmax x), whose derivative is zero wherever it exists. Declared instead, with p = softmax(x / t): dx = p (dy - sum(p dy)) / t.

    Args:
        x: Floating tensor, any shape of at least one dimension. Among equal elements the first counts.
        dim: The dimension of the choices.
        temperature: Positive number t; the lower, the closer softmax is to argmax.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or a temperature that is no number.
        ValueError: for a temperature that is not positive.
        IndexError: for a `dim` that `x` does not have.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([[0.0, 3.0, 1.0]], requires_grad=True)
        >>> pb.ops.argmax_onehot_ste(x)
        tensor([[0., 1., 0.]], grad_fn=<argmax_onehot_steBackward>)

    References:
        Jang, Gu and Poole, Categorical reparameterization with Gumbel-softmax, 2017, arXiv:1611.01144, section 2.2, without the noise.
    """
    arguments.floating("argmax_onehot_ste", x=x)
    arguments.dimension("argmax_onehot_ste", "dim", dim, x)
    arguments.number("argmax_onehot_ste", "temperature", temperature)
    if not temperature > 0:
        raise ValueError(f"argmax_onehot_ste: temperature must be positive, got {temperature!r}.")
    return one_hot_of_greatest(x, dim)


@argmax_onehot_ste.surrogate
def _(x: Tensor, dim: int, temperature: float) -> Tensor:
    return torch.softmax(x / temperature, dim)


@argmax_onehot_ste.vjp("x")
def _(dy: Tensor, x: Tensor, dim: int, temperature: float) -> Tensor:
    return softmax_vjp(dy, torch.softmax(x / temperature, dim), dim) / temperature


@argmax_onehot_ste.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-3.0, 4.0, 15, dtype=torch.float64).sin().reshape(3, 5)
    yield sample(x)
    yield sample(x, 0, 0.5)
