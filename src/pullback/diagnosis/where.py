"""Where an error sits when no cause is known: elements, rows, blocks, sign and magnitude, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .mismatch import AGREES


def describe(got: Tensor, expected: Tensor, operands: Mapping[str, Tensor] | None = None) -> str:
    """Return in words where `got` differs from `expected`: ``"rows 6 … 7 of 8 are wrong; there got is 0"``.

    Args:
        got: A gradient, any shape, real or complex.
        expected: The right one.
        operands: Tensors by name whose sign may tell the wrong elements from the right ones.
    """
    if got.numel() == 0 or got.shape != expected.shape:
        return ""
    gap = torch.nan_to_num((got - expected).abs().to(torch.float64), nan=torch.inf)
    scale = float(torch.nan_to_num(expected.abs().to(torch.float64)).max())
    wrong = gap > AGREES * scale
    count = int(wrong.sum())
    if count == 0:
        return ""
    region = _region(wrong, operands or {})
    return "; ".join(part for part in (region or _place(wrong, count), _kind(got[wrong], expected[wrong])) if part)


def _region(wrong: Tensor, operands: Mapping[str, Tensor]) -> str:
    """Return a condition on one operand that holds exactly where the gradient is wrong, if there is one."""
    if bool(wrong.all()):
        return ""
    for name, tensor in operands.items():
        if tensor.shape != wrong.shape or tensor.is_complex():
            continue
        for sign, mask in (("<", tensor < 0), (">", tensor > 0), ("=", tensor == 0), ("≤", tensor <= 0), ("≥", tensor >= 0)):
            if bool((mask == wrong).all()):
                return f"wrong exactly where {name} {sign} 0 ({int(wrong.sum())} of {wrong.numel()} elements)"
    return ""


def _place(wrong: Tensor, count: int) -> str:
    if count == wrong.numel():
        return "every element is wrong"
    if wrong.dim() == 0:
        return ""
    for dim in range(wrong.dim()):
        others = [d for d in range(wrong.dim()) if d != dim]
        along = wrong.flatten(0) if not others else wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1).any(1)
        full = wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1).all(1)
        hit = along.nonzero().flatten().tolist()
        if len(hit) < wrong.shape[dim] and bool((along == full).all()):
            return f"{_axis(dim, wrong.dim())} {_indices(hit)} of {wrong.shape[dim]} {'is' if len(hit) == 1 else 'are'} wrong, the others right"
    return f"{count} of {wrong.numel()} elements are wrong, scattered"


def _axis(dim: int, dims: int) -> str:
    if dims == 1:
        return "elements"
    return {0: "rows", dims - 1: "columns"}.get(dim, f"slices along dim {dim}")


def _indices(hit: list[int]) -> str:
    if len(hit) == 1:
        return str(hit[0])
    if hit == list(range(hit[0], hit[-1] + 1)):
        return f"{hit[0]} … {hit[-1]}"
    return ", ".join(map(str, hit[:6])) + (", …" if len(hit) > 6 else "")


def _kind(got: Tensor, expected: Tensor) -> str:
    if bool(torch.isnan(got.abs()).any()):
        return "got NaN there"
    if bool(torch.isinf(got.abs()).any()):
        return "got infinity there"
    if not bool(got.any()):
        return "got is 0 there"
    if got.is_complex():
        return ""
    ratio = got / torch.where(expected == 0, torch.nan, expected)
    ratio = ratio[torch.isfinite(ratio)]
    if ratio.numel() and bool((ratio < 0).all()):
        return "got has the opposite sign there"
    if ratio.numel() > 1:
        low, high = float(ratio.min()), float(ratio.max())
        between = f"lies between {low:.3g} and {high:.3g}" if f"{low:.3g}" != f"{high:.3g}" else f"is {low:.3g}"
        return f"got / expected {between} there"
    return ""
