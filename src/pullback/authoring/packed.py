"""The eager form of an op of ``*args`` alone: one Function for any number of tensors, which are never spread over names.

With a hundred arguments, spreading them over names and collecting them again, at each of six calls, costs more than all else that an op adds.
"""

from __future__ import annotations

from operator import countOf
from typing import Any

import torch

from .rules import Definition
from .runtime import cotangents, outputs_of
from .specialise import matching
from .structure import LEAF

Tensor = torch.Tensor
# What the Function returns where not every argument is a tensor, or none wants a gradient: the call is then made in the general way.
UNPACKED = object()


def packable(definition: Definition) -> bool:
    """Whether an op takes nothing but ``*args``, and one rule gives the gradients of all of them."""
    if len(definition.params) != 1 or not definition.params[0].variadic or definition.params[0].static:
        return False
    if definition.kept or definition.automatic or definition.mutates or definition.opaque or definition.kernels or definition.vmap:
        return False
    if definition.autocast is not None or definition.inference is not None or len(definition.rules) != 1:
        return False
    (rule,) = definition.rules
    plain = rule.of is None and rule.undefined == "zeros" and rule.wanted is None and rule.exact and not rule.once and not rule.kernels
    return plain and set(rule.residuals) <= {definition.params[0].name}


def packed_function(definition: Definition, alias: str, module: str) -> type[torch.autograd.Function]:
    """The Function of a packable op; its arguments are the op's."""
    body, (rule,) = definition.body, definition.rules
    pull, keeps = rule.function, bool(rule.residuals)
    where = f"{definition.name}.vjp[{rule.title}] ({rule.place})"
    target = rule.targets[0]

    def forward(ctx: Any, *xs: Any) -> Any:
        needs = ctx.needs_input_grad
        if not all(needs) and (not any(needs) or not all(isinstance(x, Tensor) for x in xs)):
            return UNPACKED
        y = body(xs)
        if keeps:
            ctx.to_save = xs
        if type(y) is Tensor:
            return y
        if type(y) is tuple and len(y) > 1 and countOf(map(type, y), Tensor) == len(y):
            ctx.many = None
            return y
        found = outputs_of(y, False)
        if found is None:
            return y
        flat, ctx.many, marked = found
        return (*flat, ctx.many) if marked else flat

    def backward(ctx: Any, dy: Any, *more: Any) -> Any:
        if not more:
            dys = dy
        elif ctx.many is None:
            dys = (dy, *more)
        else:
            (dys,) = cotangents(ctx, dy, more, 0)
        if keeps:
            saved = ctx.saved_tensors
            size, grads = len(saved), pull(dys, saved)
        else:
            size, grads = len(ctx.needs_input_grad), pull(dys)
        if type(grads) is tuple and len(grads) == size:
            return grads
        return tuple(matching(where, target, ("tuple", (LEAF,) * size), size, grads))

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(
        alias,
        (torch.autograd.Function,),
        {**methods, "__module__": module, "__qualname__": definition.name, "__doc__": body.__doc__, "__pullback__": {}},
    )
