"""The op as plain torch: autograd through the forward itself, a reference, or a surrogate.

Autograd of the forward is a helper, not a judge: a forward that detaches, works under no_grad or writes through numpy is right although its
autograd derivative is not. It is used only after it agrees with difference quotients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..capture.calls import Function, parameter_names
from .evaluate import Evaluator


class RecordingContext:
    """Stands in for `ctx` while a forward runs as plain torch code; takes everything a real context takes."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.non_differentiable: tuple[Tensor, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        pass

    def mark_dirty(self, *tensors: Tensor) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.non_differentiable = tensors

    def mark_shared_storage(self, *pairs: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    @property
    def to_save(self) -> tuple[Tensor | None, ...]:
        return self.saved_tensors


def run_forward(function: type[Function], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a Function's forward as plain torch code that autograd can see."""
    context = RecordingContext(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
    if function.setup_context is Function.setup_context:
        result = function.forward(context, *args, **kwargs)
    else:
        result = function.forward(*args, **kwargs)
        function.setup_context(context, args, result)
    hidden = {id(t) for t in context.non_differentiable}
    if isinstance(result, Tensor):
        return result.detach() if id(result) in hidden else result
    if isinstance(result, tuple):
        return tuple(r.detach() if isinstance(r, Tensor) and id(r) in hidden else r for r in result)
    return result


@contextmanager
def functions_as_forwards() -> Iterator[None]:
    """Make every `Function.apply` run its forward as plain torch code while the context is open."""
    original = Function.__dict__["apply"]
    Function.apply = classmethod(run_forward)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Function.apply = original  # type: ignore[method-assign]


def eager(evaluator: Evaluator) -> Evaluator:
    """Return the same call with every custom Function replaced by its forward, so that gradients are autograd's own."""
    target = evaluator.target
    described = target.described

    def call(*args: Any, **kwargs: Any) -> Any:
        with functions_as_forwards():
            if described is not None:
                return run_forward(described, *args, **kwargs)
            return target.call(*args, **kwargs)

    return evaluator.variant(target=replace(target, call=call, function=None))


def other(evaluator: Evaluator, call: Callable[..., Any]) -> Evaluator:
    """Return an evaluator that calls a reference or surrogate with the same arguments."""
    names = parameter_names(call) or evaluator.target.names
    return evaluator.variant(target=replace(evaluator.target, call=call, function=None, names=evaluator.target.names or names))
