"""Spikes: a step with a smooth gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ..kernels import cpu, elementwise

Surrogate = Literal["arctan", "fast_sigmoid", "triangle"]
_ALPHA = {"arctan": 2.0, "fast_sigmoid": 10.0, "triangle": 1.0}


def heaviside_reference(x: Tensor, surrogate: Surrogate = "arctan", alpha: float | None = None) -> Tensor:
    """A spike in plain torch, with the usual detour around its gradient."""
    soft = _soft(x, surrogate, alpha)
    return soft + ((x >= 0).to(x.dtype) - soft).detach()


@op(reference=heaviside_reference, static=("surrogate", "alpha"), elementwise=True)
def heaviside(x: Tensor, surrogate: Surrogate = "arctan", alpha: float | None = None) -> Tensor:
    """Return 1 where ``x >= 0`` and 0 elsewhere, with the gradient of a smooth step: the spike of a spiking neuron.

    Math:
        y = 1 for x >= 0, else 0. Declared instead of its derivative, which is zero wherever it exists:
        ``"arctan"``: ``dx = dy (alpha / 2) / (1 + (pi alpha x / 2)²)``, of ``atan(pi alpha x / 2) / pi + 1/2``;
        ``"fast_sigmoid"``: ``dx = dy / (1 + alpha |x|)²``, of ``x / (1 + alpha |x|)``;
        ``"triangle"``: ``dx = dy alpha max(0, 1 - alpha |x|)``, of ``t - t |t| / 2 + 1/2`` with ``t = clamp(alpha x, -1, 1)``.

    Args:
        x: Floating tensor, any shape: how far the membrane potential lies above the threshold.
        surrogate: ``"arctan"``, ``"fast_sigmoid"`` or ``"triangle"``.
        alpha: Sharpness, positive; None for what the references use: 2 for arctan, 10 for fast sigmoid, 1 for triangle.

    Returns:
        A tensor of x's shape and dtype.

    Saves:
        `x`: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; the surrogate's derivatives of any order, torch.func, forward mode, torch.compile,
        autocast.

    Raises:
        TypeError: for an `x` that is no floating tensor, or an `alpha` that is neither a number nor None.
        ValueError: for an unknown `surrogate`, or an `alpha` that is not positive.

    Example:
        >>> import torch, pullback as pb
        >>> potential = torch.tensor([0.2, 1.0, 1.4], requires_grad=True)
        >>> spikes = pb.ops.heaviside(potential - 1, "triangle")
        >>> spikes
        tensor([0., 1., 1.], grad_fn=<heavisideBackward>)
        >>> spikes.sum().backward()
        >>> potential.grad
        tensor([0.2000, 1.0000, 0.6000])

    References:
        Fang et al., Incorporating learnable membrane time constant to enhance learning of spiking neural networks, 2021, arXiv:2007.05785 (arctan);
        Zenke and Ganguli, SuperSpike, 2018, arXiv:1705.11146 (fast sigmoid);
        Bellec et al., Long short-term memory and learning-to-learn in networks of spiking neurons, 2018, arXiv:1803.09574 (triangle).
    """
    arguments.floating("heaviside", x=x)
    arguments.choice("heaviside", "surrogate", surrogate, *_ALPHA)
    if alpha is not None:
        arguments.number("heaviside", "alpha", alpha, kind="a number or None")
        if not alpha > 0:
            raise ValueError(f"heaviside: alpha must be positive, got {alpha!r}.")
    fast = elementwise.flat("heaviside_forward", x)
    if fast is not None:
        return fast
    if cpu.plain(x):
        return torch.ge(x, 0, out=torch.empty_like(x))  # in x's dtype, since torch reads and writes bools one by one
    return (x >= 0).to(x.dtype)


@heaviside.surrogate
def _soft(x: Tensor, surrogate: str, alpha: float | None) -> Tensor:
    return _SOFT[surrogate](x, _ALPHA[surrogate] if alpha is None else alpha)


@heaviside.vjp("x")
def _(dy: Tensor, x: Tensor, surrogate: str, alpha: float | None) -> Tensor:
    alpha = _ALPHA[surrogate] if alpha is None else alpha
    fast = elementwise.flat(f"heaviside_{surrogate}", dy, x, numbers=(alpha,))
    return _SLOPES[surrogate](dy, x, alpha) if fast is None else fast


@heaviside.samples
def _() -> Iterator[Sample]:
    x = torch.linspace(-1.3, 1.2, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x)
    yield sample(x, "fast_sigmoid")
    yield sample(x, "triangle", 1.3)


def _arctan(x: Tensor, alpha: float) -> Tensor:
    return torch.atan(math.pi / 2 * alpha * x) / math.pi + 0.5


def _arctan_slope(dy: Tensor, x: Tensor, alpha: float) -> Tensor:
    scaled = math.pi / 2 * alpha * x
    if cpu.plain(dy, x):
        return (dy * (alpha / 2)).div_(scaled.mul_(scaled).add_(1))
    return dy * (alpha / 2) / (1 + scaled * scaled)


def _fast_sigmoid(x: Tensor, alpha: float) -> Tensor:
    return x / (1 + alpha * x.abs())


def _fast_sigmoid_slope(dy: Tensor, x: Tensor, alpha: float) -> Tensor:
    scaled = 1 + alpha * x.abs()
    return dy / (scaled * scaled)


def _triangle(x: Tensor, alpha: float) -> Tensor:
    scaled = (alpha * x).clamp(-1, 1)
    return scaled - scaled * scaled.abs() / 2 + 0.5


def _triangle_slope(dy: Tensor, x: Tensor, alpha: float) -> Tensor:
    return dy * alpha * (1 - alpha * x.abs()).clamp(min=0)


_SOFT: dict[str, Callable[[Tensor, float], Tensor]] = {"arctan": _arctan, "fast_sigmoid": _fast_sigmoid, "triangle": _triangle}
_SLOPES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "arctan": _arctan_slope,
    "fast_sigmoid": _fast_sigmoid_slope,
    "triangle": _triangle_slope,
}
