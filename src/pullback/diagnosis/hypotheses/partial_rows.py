"""got is right except for a block that is zero, or repeats another."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..explain import Hypothesis
from ..mismatch import AGREES, Fit, Mismatch, agrees

ROWS = 32
"""Of how many rows at most it is asked what each contributes."""


class PartialRows(Hypothesis):
    """A loop over blocks leaves the last block, the first chunk or every row but one without a gradient."""

    name = "partial-rows"
    rank = 13

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        got, expected = mismatch.got, mismatch.expected
        wrong = (got - expected).abs() > AGREES * expected.abs().max() if expected.numel() else torch.zeros(())
        for dim in range(expected.dim()):
            lines = wrong.movedim(dim, 0).reshape(wrong.shape[dim], -1).any(1)
            hit = lines.nonzero().flatten().tolist()
            if not hit or len(hit) == wrong.shape[dim] or hit != list(range(hit[0], hit[-1] + 1)):
                continue
            start, stop = hit[0], hit[-1] + 1
            edge = "the last" if stop == wrong.shape[dim] else "the first" if start == 0 else "some"
            yield Fit(
                f"{edge} {stop - start} of {wrong.shape[dim]} slices along dim {dim} get no gradient (the block {start} … {stop - 1} stays zero)",
                lambda m, dim=dim, start=start, stop=stop: _zeroed(m.expected, dim, start, stop),
                "check the loop bounds and the mask of the last block",
            )


class PartialSum(Hypothesis):
    """A gradient that is summed over rows or blocks holds what some of them contribute: the sum is assigned anew in every turn of a loop."""

    name = "partial-rows"
    rank = 15

    def fit(self, mismatch: Mismatch) -> Iterator[Fit]:
        got = mismatch.got.flatten()
        if got.is_complex() or not bool(torch.isfinite(got).all()) or not bool(got.any()):
            return
        for path, tensor in (*mismatch.cotangents.items(), *mismatch.arguments.items()):
            for dim, count in enumerate(tensor.shape):
                if path == mismatch.path or not 2 <= count <= min(ROWS, got.numel()):
                    continue
                parts = [_part(mismatch, path, dim, [i]) for i in range(count)]
                there = _members([p.flatten() for p in parts if p is not None], got, mismatch.expected.flatten(), count)
                if there is None:
                    continue
                name = path if path in mismatch.arguments else f"grad_output of {path}" if len(mismatch.cotangents) > 1 else "grad_output"
                yield Fit(
                    f"only what {_said(there, count)} along dim {dim} of {name} contributes is there; the rest is left out or overwritten",
                    lambda m, path=path, dim=dim, there=there: _part(m, path, dim, there),
                    "check the bounds of the loop over blocks, and add to a sum in every turn (+=)",
                )


def _part(m: Mismatch, path: str, dim: int, rows: list[int]) -> Tensor | None:
    """Return the gradient that some rows of a cotangent, or of an argument, bring about."""
    tensor = m.cotangents.get(path, m.arguments.get(path))
    if tensor is None or tensor.dim() <= dim or tensor.shape[dim] <= max(rows):
        return None
    kept = torch.zeros_like(tensor).index_copy(dim, torch.tensor(rows), tensor.index_select(dim, torch.tensor(rows)))
    return m.vjp(m.path, cotangents={**m.cotangents, path: kept}) if path in m.cotangents else m.vjp(m.path, values={path: kept})


def _members(parts: list[Tensor], got: Tensor, expected: Tensor, count: int) -> list[int] | None:
    """Return which parts a gradient is the sum of, where all together are the right one and each is in it once or not at all."""
    if (
        len(parts) < count
        or any(p.shape != got.shape or not bool(torch.isfinite(p).all()) for p in parts)
        or not agrees(sum(parts[1:], parts[0]), expected)
    ):
        return None
    matrix = torch.stack(parts, -1)
    if int(torch.linalg.matrix_rank(matrix)) < count:
        return None
    shares = torch.linalg.lstsq(matrix, got[:, None]).solution.flatten()
    there = [i for i, share in enumerate(shares.tolist()) if abs(share - 1) < AGREES]
    whole = all(min(abs(share), abs(share - 1)) < AGREES for share in shares.tolist())
    return there if whole and 0 < len(there) < count else None


def _said(rows: list[int], count: int) -> str:
    if rows != list(range(rows[0], rows[-1] + 1)):
        return f"rows {', '.join(map(str, rows))}"
    which = f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} … {rows[-1]}"
    return f"the last {which}" if rows[-1] == count - 1 else f"the first {which}" if rows[0] == 0 else which


def _zeroed(expected: Tensor, dim: int, start: int, stop: int) -> Tensor:
    index = torch.arange(start, min(stop, expected.shape[dim]), device=expected.device)
    return expected.index_fill(dim, index, 0)
