"""The same operators on a machine that rounds otherwise: what changes there is rounding, and no formula."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from . import tolerance
from .tensors import differentiable

ROUNDED = 16
"""How many times the change by one rounding an error may be: a formula rounds more than once."""
SALTS = (0x2545F491, 0x1B873593, 0x4C957F2D, 0x6C078965, 0x369DEA0F, 0x5851F42D)
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
