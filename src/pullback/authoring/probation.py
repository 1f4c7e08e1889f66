"""The first calls of an op are watched more closely than the ones after."""

from __future__ import annotations

from typing import Any

import torch

from .. import _compat
from .errors import OpError
from .rules import Definition

Tensor = torch.Tensor
CALLS = 8


class Probation:
    """Stands in for the eager Function during an op's first calls, and looks for what would cost too much to look for at every call.

    A forward that changes an argument it does not list, and a gradient of a wrong shape, are told with the op's own names. Afterwards torch still
    refuses a gradient of a wrong shape, naming the op and the argument's position.
    """

    def __init__(self, definition: Definition, eager: Any, names: dict[str, Any]) -> None:
        self.left = CALLS
        self.names = names
        fast = _compat.c_apply(eager)
        untouched = [i for i, param in enumerate(definition.params) if param.name not in definition.mutates]
        check_shapes, complex_gradient = names["check_shapes"], names["complex_gradient"]

        def forward(ctx: Any, *args: Any) -> Any:
            watched = [(i, args[i], args[i]._version) for i in untouched if isinstance(args[i], Tensor) and not args[i].is_inference()]
            result = eager.forward(ctx, *args)
            for i, arg, version in watched:
                if arg._version != version:
                    name = definition.names[i]
                    raise OpError(
                        f"{definition.name} ({definition.place}) changes its argument {definition.shown(name)!r} in place, but does not say so. "
                        f'Declare @pb.op(mutates=("{definition.argument(name)}",)), or work on a copy.'
                    )
            ctx.shapes = tuple([arg.shape if isinstance(arg, Tensor) else None for arg in args])
            ctx.real = tuple([isinstance(arg, Tensor) and not arg.is_complex() for arg in args])
            return result

        def backward(ctx: Any, *dys: Any) -> Any:
            grads = check_shapes(ctx.shapes, eager.backward(ctx, *dys))
            for i, grad in enumerate(grads if isinstance(grads, tuple) else (grads,)):
                if ctx.real[i] and grad is not None and grad.is_complex():
                    raise complex_gradient(i)
            return grads

        forward.__wrapped__, backward.__wrapped__ = eager.forward, eager.backward  # type: ignore[attr-defined]
        body = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": eager.__module__}
        self.apply_watched = _compat.c_apply(type(names["__name__"].rpartition(".")[2], (torch.autograd.Function,), body))
        self.fast = fast

    def apply(self, *args: Any) -> Any:
        """Call the op, watched; the last watched call puts the bare one in its place."""
        self.left -= 1
        if self.left <= 0:
            self.names["apply"] = self.fast
        return self.apply_watched(*args)
