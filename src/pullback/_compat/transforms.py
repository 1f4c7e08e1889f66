"""torch.func transforms and forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def transforms_active() -> Callable[[], bool]:
    """The C test for a running torch.func transform (grad, vmap, jvp).

    Fallback: none needed; `Function.apply` of every torch since 2.1 asks the same. Retire when torch has a public test.
    """
    import torch

    return torch._C._are_functorch_transforms_active


def forward_level() -> Any:
    """The module whose `_current_level` is at least 0 while a forward-mode level is open.

    Fallback: none; the name has been there since torch 1.11. Retire when torch.autograd.forward_ad can be asked.
    """
    import torch.autograd.forward_ad as forward_ad

    return forward_ad


def call_under_transforms(function: Any, *args: Any) -> Any:
    """What `Function.apply` does while a torch.func transform runs, without binding arguments.

    Fallback: `function.apply`. Retire together with `c_apply`.
    """
    from torch._functorch.autograd_function import custom_function_call

    call: Any = custom_function_call
    return call(function, *args)


def unwrap_dead(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """`values` without the wrappers of torch.func transforms that have ended, as torch's own operators unwrap them.

    Fallback: none; `Function.apply` calls the same. Retire when saved tensors come unwrapped.
    """
    from torch._functorch.utils import unwrap_dead_wrappers

    return unwrap_dead_wrappers(values)


def jvp_levels() -> int:
    """How many torch.func.jvp transforms are running.

    Fallback: none; torch's own jvp calls it. Retire when a Function's setup_context can tell what it is run for.
    """
    from torch._C._functorch import TransformType, get_interpreter_stack

    return sum(interpreter.key() == TransformType.Jvp for interpreter in get_interpreter_stack() or ())


def outside_transforms() -> Any:
    """A context manager in which no torch.func transform is running, for work on tensors of one's own.

    Fallback: none; torch uses it where a backend compiles inside a transform. Retire when torch has a public one.
    """
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def forward_mode_below(values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A context manager in which tangents of outer jvp levels are propagated, and `values` without their tangents at the level that is running.

    torch runs a Function's jvp with forward mode switched off for every level, so that jvp(jvp(f)) of a Function is silently 0; switched on, what
    jvp reads must not bring its tangent of the present level along. Fallback: none. Retire when torch does the same.
    """
    import torch
    import torch._C._functorch as _functorch
    from torch.autograd.forward_ad import _set_fwd_grad_enabled

    stack = _functorch.get_interpreter_stack() or ()
    level = max((i.level() for i in stack if i.key() == _functorch.TransformType.Jvp), default=-1)

    def primal(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if _functorch.is_batchedtensor(value):
            own: Any = _functorch.maybe_get_level(value)
            batched: Any = _functorch._unwrap_batched(value, own)
            inner, dim = batched
            return _functorch._add_batch_dim(primal(inner), dim, own)
        if _functorch.is_gradtrackingtensor(value) and _functorch.maybe_get_level(value) == level:
            return _functorch._wrap_for_grad(_functorch._unwrap_for_grad(value, level), level)
        return value

    return _set_fwd_grad_enabled(True), tuple([primal(value) for value in values])


def everywhere(condition: Any) -> bool:
    """Whether a bool tensor is true in all its elements, for all examples of every vmap that is running.

    Fallback: torch's own answer, which vmap refuses. Retire when vmap offers control flow that depends on all examples.
    """
    import torch
    import torch._C._functorch as functorch

    if torch.compiler.is_compiling():
        return bool(condition.all())
    while functorch.is_functorch_wrapped_tensor(condition):
        condition = functorch.get_unwrapped(condition)
    return bool(condition.all())


def primal(value: Any) -> Any:
    """`value` without its tangent of a dual level outside of torch.func.

    torch switches forward mode off while a Function's jvp runs, and torch.func on again inside of it: an op that its own rule calls would never end.
    Fallback: the value as it is. Retire when what `saved_tensors` gives to jvp has no tangents.
    """
    import torch
    from torch.autograd import forward_ad

    if forward_ad._current_level < 0 or not isinstance(value, torch.Tensor):
        return value
    with forward_ad._set_fwd_grad_enabled(True):
        return forward_ad.unpack_dual(value).primal
