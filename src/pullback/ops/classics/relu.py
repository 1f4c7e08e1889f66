"""ReLU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments

_threshold_backward = torch.ops.aten.threshold_backward.default


def relu_reference(x: Tensor) -> Tensor:
    """ReLU in plain torch."""
    return torch.relu(x)


@op(reference=relu_reference, elementwise=True)
def relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``.

    Math:
        y = max(x, 0); dy/dx = 1 where y > 0, else 0, also at x = 0. NaN stays NaN.

    Args:
        x: Floating tensor, any shape.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        The output, whose sign tells that of `x`: nothing where what comes next keeps it too, as a linear layer does.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor.

    Example:
        >>> import torch, pullback as pb
        >>> pb.ops.relu(torch.tensor([-1.0, 0.0, 2.0], requires_grad=True))
        tensor([0., 0., 2.], grad_fn=<reluBackward>)

    References:
        Nair and Hinton, Rectified linear units improve restricted Boltzmann machines, ICML 2010.
    """
    arguments.floating("relu", x=x)
    return torch.relu(x)


@relu.vjp("x")
def _(dy: Tensor, out: Tensor) -> Tensor:
    return _threshold_backward(dy, out, 0)


@relu.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4))
