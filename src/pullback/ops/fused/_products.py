"""Matrix products of linear layers, by whichever of torch's two CPU libraries is faster for the shape."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import _compat
from .. import arguments
from ._eager import autocasts, eager, rows_of

SMALL = 1 << 25
"""Operations below which a product is not worth a choice: calls cost as much as it does."""
PROBE = 1 << 31
"""Operations of one probing product: some 10 ms."""
MARGIN = 0.9
"""What a library's time must be of torch's to be chosen."""

_enabled = [os.environ.get("PULLBACK_PROBE", "1") != "0"]
_chosen: dict[tuple[int, ...], bool] = {}


def probe_products(enabled: bool = True) -> bool:
    """Choose whether linear ops look for the faster matrix product of a shape, and return what was chosen before.

    Torch multiplies float32 matrices on CPU by MKL or OpenBLAS; it carries oneDNN too, which is twice as fast on some processors. At the first call
    of a shape class (rows up to a power of two, exact inner and outer sizes, number of threads), both are timed on the call's own matrices, for some
    20 to 100 ms; the choice is kept for the process. Results of the two agree to rounding, so what a run computes may depend on the timing in its
    last digits: ``probe_products(False)``, ``torch.use_deterministic_algorithms(True)`` or the environment variable ``PULLBACK_PROBE=0`` always take
    torch's own product.

    Args:
        enabled: Whether to probe. Off also forgets what was chosen.

    Returns:
        Whether probing was on before.

    Example:
        >>> import pullback as pb
        >>> before = pb.ops.probe_products(False)
        >>> pb.ops.probe_products(before)
        False
    """
    before = _enabled[0]
    _enabled[0] = enabled
    if not enabled:
        _chosen.clear()
    return before


def check(op: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse what no linear layer takes.

    Raises:
        TypeError: for an argument that is no floating tensor, or dtypes that differ outside of autocast.
        ValueError: for shapes that do not fit, or tensors on several devices.
    """
    arguments.floating(op, x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    arguments.shape(op, "weight", weight, "out", "in")
    if x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"{op}: x must have the shape [..., {weight.shape[1]}] for a weight of shape {list(weight.shape)}, got {list(x.shape)}.")
    if bias is not None:
        arguments.shape(op, "bias", bias, weight.shape[0])
    arguments.together(op, x=x, weight=weight, bias=bias)
    if not autocasts(x):
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None and value.dtype != x.dtype:
                raise TypeError(f"{op}: {name} must have x's dtype {x.dtype}, got {value.dtype}.")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x weightᵀ + bias``."""
    if _faster(x, weight, bias):
        return _compat.onednn_linear()(x, weight, bias)
    return F.linear(x, weight, bias)


def grad_x(dz: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `linear` for x, ``dz weight``."""
    if _faster(dz, weight.t(), None):
        return _compat.onednn_linear()(dz, weight.t(), None)
    return dz @ weight


def grad_weight(dz: Tensor, x: Tensor) -> Tensor:
    """The gradient of `linear` for weight, ``dzᵀ x`` over all rows."""
    dz, x = rows_of(dz), rows_of(x)
    if _faster(dz.t(), x.t(), None):
        return _compat.onednn_linear()(dz.t(), x.t(), None)
    return dz.t() @ x


def grad_bias(dz: Tensor) -> Tensor:
    """The gradient of `linear` for bias: `dz` summed over rows."""
    return rows_of(dz).sum(0)


def _faster(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN multiplies matrices of these shapes faster than torch does by itself."""
    if not _enabled[0] or torch.compiler.is_compiling() or x.dtype is not torch.float32 or x.device.type != "cpu":
        return False
    inner, outer = weight.shape[1], weight.shape[0]
    rows = x.numel() // max(1, inner)
    if 2 * rows * inner * outer < SMALL or weight.dtype is not torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    if _compat.onednn_linear() is None or torch.are_deterministic_algorithms_enabled() or not eager(x, weight, bias):
        return False
    layout = (x.stride(-1) == 1) * 2 + (weight.stride(-1) == 1)
    key = (rows.bit_length(), inner, outer, layout, torch.get_num_threads())
    if key not in _chosen:
        _chosen[key] = _probe(x, weight, PROBE // (2 * inner * outer))
    return _chosen[key]


def _probe(x: Tensor, weight: Tensor, rows: int) -> bool:
    some = x.flatten(0, -2)[: max(1, rows)] if x.dim() > 1 else x
    onednn = _compat.onednn_linear()
    candidates: tuple[Callable[[], Tensor], ...] = (lambda: F.linear(some, weight), lambda: onednn(some, weight, None))
    best = [float("inf")] * 2
    for turn in range(4):
        for i, candidate in enumerate(candidates):
            start = time.perf_counter()
            candidate()
            if turn:
                best[i] = min(best[i], time.perf_counter() - start)
    return best[1] < MARGIN * best[0]
