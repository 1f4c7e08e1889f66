"""ReLU of guided backpropagation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu, elementwise

_threshold_backward = torch.ops.aten.threshold_backward.default


def guided_relu_reference(x: Tensor) -> Tensor:
    """The same in plain torch, by a hook."""
    y = torch.relu(x)
    if y.requires_grad:
        y.register_hook(lambda dy: dy.clamp(min=0))
    return y


@op(reference=guided_relu_reference, elementwise=True)
def guided_relu(x: Tensor) -> Tensor:
    """Return ``max(x, 0)``, which lets only positive gradients pass back.

    Math:
        y = max(x, 0). Declared instead of its derivative: dx = dy where y > 0 and dy > 0, else 0; not linear in dy.

    Args:
        x: Floating tensor, any shape.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        The output, whose sign tells that of `x`: nothing where what comes next keeps it too.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; torch.func, torch.compile, autocast. Forward mode and second derivatives are those of ReLU
        and of the declared gradient.

    Raises:
        TypeError: for an `x` that is no floating tensor.

    Example:
        >>> import torch, pullback as pb
        >>> x = torch.tensor([-1.0, 2.0, 3.0], requires_grad=True)
        >>> pb.ops.guided_relu(x).backward(torch.tensor([1.0, -1.0, 1.0]))
        >>> x.grad
        tensor([0., 0., 1.])

    References:
        Springenberg et al., Striving for simplicity: the all convolutional net, 2014, arXiv:1412.6806, section 3.4.
    """
    arguments.floating("guided_relu", x=x)
    return torch.relu(x)


@guided_relu.vjp("x", exact=False, linear=False, reason="guided backpropagation")
def _(dy: Tensor, out: Tensor) -> Tensor:
    fast = elementwise.flat("guided_relu_backward", dy, out)
    if fast is not None:
        return fast
    if not (cpu.plain(dy, out) and dy.dtype == out.dtype):
        return _threshold_backward(dy.clamp(min=0), out, 0)
    grad = torch.relu(dy)  # faster than clamp, but with another derivative where dy is 0
    return torch.ops.aten.threshold_backward.grad_input(grad, out, 0, grad_input=grad)


@guided_relu.jvp
def _(tangents, out):
    return _threshold_backward(tangents.x, out, 0)


@guided_relu.samples
def _() -> Iterator[Sample]:
    yield sample(torch.linspace(-4.0, 5.0, 12, dtype=torch.float64).reshape(3, 4))
