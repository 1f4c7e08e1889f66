"""How far rounding alone moves a gradient: what a formula with few digits left gives cannot be told from what a wrong one gives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from . import tolerance
from .evaluate import Evaluator, UserCodeError
from .probe import Probe
from .single import narrow_inside
from .tensors import copy_tensor, differentiable, random_like
from .value import InputVerdict

ROUNDED = 16
"""How many times the change by one rounding an error may be: a formula rounds more than once."""
SALTS = (0x2545F491, 0x1B873593, 0x4C957F2D, 0x6C078965, 0x369DEA0F, 0x5851F42D)
POINTS = (1, 2)
"""How many roundings the points lie away from the input: all on one side of it, so that a kink at the input does not count."""
_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
_ROUNDS = re.compile(
    r"r?sub|addc?(mul|div)?|mul|(true_)?div(ide)?|reciprocal|exp(2|m1)?|log(2|10|1p|it)?|log(add|sum)exp2?|logcumsumexp|r?sqrt|pow|square|float_power"
    r"|a?(sin|cos|tan)h?|arc\w+|atan2|hypot|sinc|sigmoid|log_sigmoid\w*|erf(c|inv|cx)?|special_\w+|lgamma|digamma|polygamma|xlogy|lerp|cross"
    r"|(nan)?(sum|mean)|(cum)?prod|cumsum|(var|std)(_mean)?|norm|linalg_\w+|cdist|_?(log_)?softmax|softplus|silu|gelu|s?elu|celu|mish|hardswish"
    r"|add(mm|mv|r|bmm)|baddbmm|b?mm|mv|v?dot|ger|outer|convolution|_?(native_)?\w+_norm|_?scaled_dot_product\w*|cholesky\w*|\w+_loss|\w+_backward\w*"
)


class OtherRounding(_compat.dispatch_mode()):  # type: ignore[misc]
    """Has every operator that rounds give its results rounded otherwise, by a unit up, down or not at all, as on another machine.

    Which way depends on the value and on the salt alone: equal results stay equal, zeros stay zero, and one salt gives the same every time.

    Args:
        salt: Chooses one such machine.
        unit: The machine epsilon of the narrowest dtype whose results are touched.
    """

    def __init__(self, salt: int, unit: float = 1.0) -> None:
        super().__init__()
        self.salt = salt
        self.unit = unit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _ROUNDS.fullmatch(func._schema.name.partition("::")[2].removesuffix("_")):
            for tensor in result if isinstance(result, (list, tuple)) else (result,):
                if (
                    isinstance(tensor, Tensor)
                    and differentiable(tensor)
                    and tensor.layout is torch.strided
                    and tolerance.eps(tensor.dtype) <= self.unit
                ):
                    _round_otherwise(torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor, self.salt)
        return result


def _round_otherwise(values: Tensor, salt: int) -> None:
    integers = _INTEGERS.get(values.dtype)
    if integers is None:
        return
    bits = values.view(integers).to(torch.int64)
    drawn = ((bits ^ salt) * 6364136223846793005 >> 33) & 3
    values.mul_(1 + tolerance.eps(values.dtype) * ((drawn == 1).to(values.dtype) - (drawn == 2).to(values.dtype)))


def rounding_for(evaluator: Evaluator, path: str) -> float:
    """Return the rounding of one input's dtype, or of float32 where the op computes in it whatever it is given."""
    dtype = next(leaf.template.dtype for leaf in evaluator.wanted if leaf.path == path)
    return max(tolerance.eps(dtype), tolerance.eps(torch.float32) if narrow_inside(evaluator) else 0.0)


def rounded_away(probe: Probe, evaluator: Evaluator, wrong: InputVerdict, unit: float) -> bool:
    """Return whether rounding moves a gradient by as much as it is wrong: exp(1e12 · x) has no digits left.

    Either the results of every operator are rounded otherwise, or, since other code than torch's rounds as well, the input is.

    Args:
        probe: The case.
        evaluator: The call at which the gradient is wrong.
        wrong: How wrong it is.
        unit: Rounding of what machine epsilon may be to blame: that of the inputs, or of narrower numbers inside.
    """
    try:
        outcome = evaluator.forward()
        cotangents = probe.cotangents(outcome)
        return any(
            ROUNDED * _spread(found) >= wrong.error
            for found in (_inside(evaluator, wrong.path, cotangents, unit), *_beside(probe, evaluator, wrong.path, cotangents, unit))
        )
    except (UserCodeError, RuntimeError):
        return False


def _inside(evaluator: Evaluator, path: str, cotangents: Sequence[Tensor], unit: float) -> list[Tensor | None]:
    found = []
    for salt in SALTS:
        with OtherRounding(salt, unit):
            found.append(_gradient(evaluator, path, cotangents))
    return found


def _beside(probe: Probe, evaluator: Evaluator, path: str, cotangents: Sequence[Tensor], unit: float) -> Iterator[list[Tensor | None]]:
    x = next(leaf.template for leaf in evaluator.wanted if leaf.path == path)
    generator = torch.Generator().manual_seed(probe.settings.seed + 13)
    for _ in range(len(SALTS)):
        moved = unit * x * random_like(x.real, generator, (1.0,))
        yield [_gradient(evaluator.variant({path: x + times * moved}), path, cotangents) for times in POINTS]


def _gradient(evaluator: Evaluator, path: str, cotangents: Sequence[Tensor]) -> Tensor | None:
    found = evaluator.vjp(evaluator.forward(), [copy_tensor(c) for c in cotangents])
    return next((g for leaf, g in zip(evaluator.wanted, found, strict=True) if leaf.path == path), None)


def _spread(gradients: Sequence[Tensor | None]) -> float:
    """Return by how much gradients differ, summed over their entries."""
    present = [g.detach() for g in gradients if g is not None]
    if len(present) < len(gradients) or any(g.shape != present[0].shape for g in present) or not present[0].numel():
        return 0.0
    return max(float((g - present[0]).abs().sum()) for g in present[1:])
