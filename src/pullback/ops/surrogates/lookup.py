"""A function given by a table, with a declared gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments

_HALVES = (torch.bfloat16, torch.float16)


def lookup_reference(x: Tensor, table: Tensor, low: float, high: float, slopes: Tensor | None = None) -> Tensor:
    """Lookup in plain torch, with the usual detour around its gradient."""
    within = x.clamp(low, high)
    move = (within - within.detach()) * _slope(x, table, low, high, slopes)
    return torch.where(x.isnan(), x, table[_nearest(x, table, low, high)] + move).to(table.dtype)


@op(reference=lookup_reference, static=("low", "high", "slopes"))
def lookup(x: Tensor, table: Tensor, low: float, high: float, slopes: Tensor | None = None) -> Tensor:
    """Return the nearest entry of a table of evenly spaced values: a function by lookup, with a declared gradient for `x`.

    Math:
        y = table[i] with i = round((x - low) / h), h = (high - low) / (n - 1), limited to 0 .. n - 1: steps, whose derivative is zero.
        Declared instead for low <= x <= high: dx = dy (table[j + 1] - table[j]) / h with j = floor((x - low) / h), the slope of linear interpolation,
        or dx = dy slopes[i]; outside dx = 0. The gradient of the table is exact: dtable[i] = sum of dy over all x that look up i.

    Args:
        x: Floating tensor, any shape. NaN gives NaN.
        table: Values at `n` evenly spaced points from `low` to `high`, floating, shape ``[n]``, n at least 2.
        low: Where the first entry lies.
        high: Where the last entry lies.
        slopes: The derivative at each point, shape ``[n]``; None for that of linear interpolation. It is not differentiated.

    Returns:
        A tensor of x's shape and the table's dtype.

    Saves:
        `x`, `table` and `slopes`: nothing beyond the arguments.

    Supports:
        float64, float32, bfloat16, float16; CPU and CUDA; derivatives of any order with slopes taken as constants, torch.func, forward mode,
        torch.compile, autocast.

    Raises:
        TypeError: for an `x`, `table` or `slopes` that is no floating tensor.
        ValueError: for a table that is not of shape ``[n]`` with n at least 2, slopes of another shape, or ``low >= high``.

    Example:
        >>> import torch, pullback as pb
        >>> table = torch.tanh(torch.linspace(-3, 3, 61))
        >>> x = torch.tensor([-9.0, 0.52], requires_grad=True)
        >>> y = pb.ops.lookup(x, table, -3, 3)
        >>> y
        tensor([-0.9951,  0.4621], grad_fn=<lookupBackward>)
        >>> y.sum().backward()
        >>> x.grad
        tensor([0.0000, 0.7493])

    References:
        Bengio, Léonard and Courville, Estimating or propagating gradients through stochastic neurons for conditional computation, 2013,
        arXiv:1308.3432, for gradients of another function than the one computed.
    """
    _check(x, table, low, high, slopes)
    return torch.where(x.isnan(), x, table[_nearest(x, table, low, high)]).to(table.dtype)


@lookup.surrogate
def _(x, table, low, high, slopes):
    return lookup_reference(x, table, low, high, slopes)


@lookup.vjp("x")
def _(dy, x, table, low, high, slopes):
    slope = _slope(x, table, low, high, slopes)
    return torch.where((x >= low) & (x <= high), dy * slope, 0.0).to(x.dtype)


@lookup.vjp("table")
def _(dy, x, table, low, high):
    index = _nearest(x, table, low, high).flatten()
    return torch.zeros_like(table).index_add(0, index, torch.where(x.isnan(), 0.0, dy).flatten())


@lookup.samples
def _() -> Iterator[Sample]:
    table = torch.sin(torch.linspace(-2.0, 2.0, 9, dtype=torch.float64))
    x = torch.linspace(-2.6, 2.7, 12, dtype=torch.float64).reshape(3, 4)
    yield sample(x, table, -2.0, 2.0)


def _position(x: Tensor, table: Tensor, low: float, high: float) -> Tensor:
    wide = x.detach().float() if x.dtype in _HALVES else x.detach()
    last = table.shape[0] - 1
    return ((wide - low) * (last / (high - low))).nan_to_num(0.0, last, 0.0).clamp(0, last)


def _nearest(x: Tensor, table: Tensor, low: float, high: float) -> Tensor:
    return _position(x, table, low, high).round().long()


def _slope(x: Tensor, table: Tensor, low: float, high: float, slopes: Tensor | None) -> Tensor:
    if slopes is not None:
        return slopes[_nearest(x, table, low, high)]
    step = (high - low) / (table.shape[0] - 1)
    return (table.detach().diff() / step)[_position(x, table, low, high).floor().clamp(max=table.shape[0] - 2).long()]


def _check(x: Tensor, table: Tensor, low: float, high: float, slopes: Tensor | None) -> None:
    arguments.floating("lookup", x=x, table=table)
    if table.dim() != 1 or table.shape[0] < 2:
        raise ValueError(f"lookup: table must have the shape [n] with n at least 2, got {list(table.shape)}.")
    arguments.number("lookup", "low", low)
    arguments.number("lookup", "high", high)
    if not low < high:
        raise ValueError(f"lookup: low must be below high, got {low!r} and {high!r}.")
    if slopes is not None:
        arguments.floating("lookup", slopes=slopes)
        arguments.shape("lookup", "slopes", slopes, table.shape[0])
    arguments.together("lookup", x=x, table=table, slopes=slopes)
