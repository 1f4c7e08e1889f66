"""The ladder of domains: is a value finding on searched inputs only about values the Function was never meant for?

A Function may take masks in {0, 1}, rows that sum to one, symmetric matrices, or one index for each row. Its gradient is then right on those and
wrong elsewhere. Each rung replaces one tensor argument by a function of a free tensor, so that the comparison stays inside the domain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...capture.case import Case
from ...trees import leaves

Mapping = Callable[[torch.Tensor], torch.Tensor]


_FROM_ONE = re.compile(r"a(rc?|rea)?_?cosh", re.IGNORECASE)


def ladder(case: Case, name: str = "") -> Iterator[tuple[str, str, Mapping]]:
    """Yield ``(name, path, function)``: one domain for one tensor argument of a case.

    `function` maps a free tensor of the argument's shape to the argument; the tested function is then the composition, differentiated with respect to
    the free tensor. Domains that leave the argument unchanged, or make it constant, are left out: the first repeats what is known, the second passes
    trivially.

    Args:
        case: Sample on which a value finding showed. `path` counts positional arguments: ``args[0]``, ``args[1][2]``, ``kwargs['w']``.
        name: Name of the Function: an inverse of cosh has no values below 1.
    """
    for path, value in (*leaves(case.args, "args"), *leaves(dict(case.kwargs), "kwargs")):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
            continue
        if value.dtype in (torch.int64, torch.int32):
            yield from ((f"of size 1 along dim {dim}", path, _first_along(dim)) for dim in range(value.dim()) if value.dim() > 1 < value.shape[dim])
        if not (value.is_floating_point() or value.is_complex()):
            continue
        for domain, function in _domains(value, from_one=_FROM_ONE.search(name) is not None):
            if _worth_trying(function, value):
                yield domain, path, function


def _domains(value: torch.Tensor, from_one: bool) -> Iterator[tuple[str, Mapping]]:
    square = value.ndim >= 2 and value.shape[-1] == value.shape[-2] > 1
    if not value.is_complex():
        yield "non-negative", torch.abs
        if from_one:
            yield "greater than 1", lambda t: 1 + torch.nn.functional.softplus(t)
        yield "between -1 and 1", torch.tanh
        yield "between 0 and 1", torch.sigmoid
        if value.ndim and value.shape[-1] > 1:
            yield "rows that sum to one", lambda t: t.softmax(-1)
    if square:
        yield "symmetric", lambda t: (t + t.mH) / 2
        yield "symmetric positive definite", lambda t: t @ t.mH / t.shape[-1] + torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
    if not value.requires_grad and not value.is_complex():
        yield "0/1", lambda t: (t > t.median()).to(t.dtype)
    yield "small", lambda t: 0.1 * t
    yield "large", lambda t: 10 * t
    if value.ndim > 1:
        yield "a vector", lambda t: t.reshape(-1, t.shape[-1])[0]


def _first_along(dim: int) -> Mapping:
    """An index that takes one entry of each row broadcasts and gathers as well when it takes several, but is not meant to."""
    return lambda t: t.narrow(dim, 0, 1)


def _worth_trying(function: Mapping, value: torch.Tensor) -> bool:
    with torch.no_grad():
        free = value.detach()
        mapped, moved = function(free), function(free * 1.3 + 0.1)
        if torch.equal(mapped, free):
            return False
        if value.requires_grad:
            return not torch.equal(mapped, moved)
        return mapped.numel() == 1 or not bool((mapped == mapped.flatten()[0]).all())


def with_argument(case: Case, path: str, value: torch.Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of `case` with the one at `path` replaced."""
    from ...trees import map_leaves

    def put(at: str, leaf: Any) -> Any:
        return value if at == path else leaf

    return map_leaves(put, case.args, "args"), map_leaves(put, dict(case.kwargs), "kwargs")
