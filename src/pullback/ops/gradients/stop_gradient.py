"""No gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample


def stop_gradient_reference(x: Tensor) -> Tensor:
    """The same in plain torch."""
    return x.detach()


@op(reference=stop_gradient_reference, static=("x",))
def stop_gradient(x: Tensor) -> Tensor:
    """Return `x` itself as a constant: no gradient, no tangent, no node in the graph.

    Math:
        y = x. Declared instead of its derivative: dx = 0, of any order.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A view of `x` that requires no gradient.

    Saves:
        Nothing, and nothing of what made `x` stays alive for its sake.

    Supports:
        Every dtype and device, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for what is no tensor.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (x * pb.ops.stop_gradient(x)).backward()
        >>> x.grad
        tensor(3.)

    References:
        Griewank and Walther, Evaluating Derivatives, 2008, DOI 10.1137/1.9780898717761, on passive variables.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"stop_gradient: x must be a tensor, got {type(x).__name__}.")
    return x.detach()


@stop_gradient.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(3, 4))
