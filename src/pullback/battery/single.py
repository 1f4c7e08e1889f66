"""Recognise ops that compute in fewer digits than their inputs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import _compat
from .evaluate import Evaluator, UserCodeError
from .tensors import differentiable, random_like

if TYPE_CHECKING:
    from .value import ValueVerdict


_WIDE = (torch.float64, torch.complex128)


class _NarrowSeen(_compat.dispatch_mode()):  # type: ignore[misc]
    """Notes whether any operator returns a floating tensor narrower than float64; empty ones, which torch itself makes, do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.seen:
            tensors = [t for t in _leaves(result) if isinstance(t, Tensor) and t.numel()]
            self.seen = any(differentiable(t) and t.dtype not in _WIDE for t in tensors)
        return result


class OperatorCount(_compat.dispatch_mode()):  # type: ignore[misc]
    """Counts operator calls and the elements they return: measures of cost that do not depend on how busy the machine is."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        result = func(*args, **(kwargs or {}))
        self.elements += sum(t.numel() for t in _leaves(result) if isinstance(t, Tensor))
        return result


def _leaves(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else [value]


def narrow_inside(evaluator: Evaluator) -> bool:
    """Return whether a call on float64 inputs makes narrower floating tensors on its way, in forward or backward."""
    generator = torch.Generator().manual_seed(0)
    with _NarrowSeen() as mode:
        try:
            outcome = evaluator.forward()
            evaluator.vjp(outcome, [random_like(y, generator, (1.0,)) for y in outcome.live])
        except UserCodeError:
            return False
    return mode.seen


def digits(evaluator: Evaluator, verdict: ValueVerdict) -> torch.dtype:
    """Return the dtype in whose digits an op works: that of its inputs, or a narrower one that the noise of its forward betrays."""
    noise = max((v.noise for v in verdict.inputs.values()), default=0.0)
    narrow = any(v.narrow for v in verdict.inputs.values())
    found = [leaf.template.dtype for leaf in evaluator.wanted]
    if noise > 1e-6:
        found.append(torch.bfloat16)
    elif noise > 1e-12 or narrow:
        found.append(torch.float32)
    return max(found, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64)
