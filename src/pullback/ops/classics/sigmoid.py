"""Sigmoid."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments

_sigmoid_backward = torch.ops.aten.sigmoid_backward.default


def sigmoid_reference(x: Tensor) -> Tensor:
    """Sigmoid in plain torch."""
    return 1 / (1 + torch.exp(-x))


@op(reference=sigmoid_reference, elementwise=True)
def sigmoid(x: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``.

    Math:
        y = 1 / (1 + exp(-x)), so dy/dx = y (1 - y).

    Args:
        x: Floating tensor, any shape.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        The output: nothing where what comes next keeps it too.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.sigmoid(torch.tensor([-1.0, 0.0, 2.0], requires_grad=True))
        tensor([0.2689, 0.5000, 0.8808], grad_fn=<sigmoidBackward>)

    References:
        Rumelhart, Hinton and Williams, Learning representations by back-propagating errors, Nature 323, 1986, doi:10.1038/323533a0.
    """
    arguments.floating("sigmoid", x=x)
    return torch.sigmoid(x)


@sigmoid.vjp("x")
def _(dy: Tensor, out: Tensor) -> Tensor:
    return _sigmoid_backward(dy, out)


@sigmoid.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4))
