"""Rules that are not differentiable again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _compat
from .errors import OpError
from .rules import Definition, Rule
from .structure import build, flatten

Tensor = torch.Tensor


class Once(torch.autograd.Function):
    """Hands gradients on; raises when they are differentiated, with respect to the cotangent or to anything the rule read."""

    generate_vmap_rule = True

    @staticmethod
    def forward(message: str, count: int, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple([value.view_as(value) for value in values[:count]])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.message = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise OpError(ctx.message)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise OpError(ctx.message)


def once_only(definition: Definition, rule: Rule, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without a graph of its own, its results guarded against a second derivative."""
    message = (
        f"{definition.name}.vjp[{rule.title}] ({rule.place}) is declared once=True: it cannot be differentiated again, "
        "and a derivative of its gradient was asked for."
    )
    transforms, c_apply = _compat.transforms_active(), _compat.c_apply(Once)

    def guarded(dy: Any, *residuals: Any, **flags: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return function(dy, *residuals, **flags)
        given: list[Any] = []
        flatten((dy, residuals), given)
        sources = [value for value in given if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())]
        with torch.no_grad():
            result = function(dy, *residuals, **flags)
        leaves: list[Any] = []
        spec = flatten(result, leaves)
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        tensors = [leaves[i] for i in at]
        if transforms():
            outs = _compat.call_under_transforms(Once, message, len(tensors), *tensors, *sources)
        elif torch.is_grad_enabled() or _compat.forward_level()._current_level >= 0:
            outs = c_apply(message, len(tensors), *tensors, *sources)
        else:
            return result
        for i, out in zip(at, outs, strict=True):
            leaves[i] = out
        return build(spec, leaves)

    return guarded
