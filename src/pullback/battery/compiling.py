"""The op as a function that torch.compile can trace: nothing of pullback stands between the compiler and the user's code."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import trees
from . import tolerance
from .base import Skipped, Unsupported
from .compare import Gap, beyond, unlike
from .evaluate import Evaluator
from .picture import differences
from .probe import Probe
from .tensors import copy_tensor, differentiable

_NUMBER = itertools.count()
Call = Callable[..., Any]


class Compilable:
    """One call of the op as functions of its wanted tensors.

    Args:
        probe: The case; its wanted inputs must be arguments themselves, not parts of containers.
        evaluator: Whose arguments are used; the probe's native ones if None.

    Attributes:
        call: Returns the outputs that carry gradients, as a tuple.
        paired: Returns their sum, each paired with its cotangent.
        points: Where the op is called.

    Raises:
        Skipped: if the call cannot be written so.
    """

    def __init__(self, probe: Probe, evaluator: Evaluator | None = None) -> None:
        evaluator = evaluator or probe.native
        outcome = evaluator.forward()
        if evaluator.nonleaf or probe.exact.hold_everything:
            raise Skipped(
                "forward changes its arguments in place" if evaluator.nonleaf else "draws random numbers, which a compiler may order otherwise"
            )
        if any(t.is_complex() for t in (*outcome.live, *(leaf.template for leaf in evaluator.wanted))):
            raise Skipped("complex tensors")
        arguments = evaluator.arguments(requires_grad=())
        wanted = [t for t, leaf in zip(arguments.tensors, evaluator.leaves, strict=True) if leaf.wanted]
        slots = [next((i for i, a in enumerate(arguments.args) if a is t), None) for t in wanted]
        if any(slot is None for slot in slots):
            raise Skipped("a differentiated tensor is inside a container or a keyword argument")
        self.points = tuple(copy_tensor(leaf.template) for leaf in evaluator.wanted)
        self.paths = tuple(leaf.path for leaf in evaluator.wanted)
        self.cotangents = tuple(probe.cotangents(outcome))
        places = tuple((trees.is_container(outcome.result) and [i]) or [] for i in outcome.carrying)
        if any(p and not isinstance(outcome.result, (tuple, list)) for p in places) or _nested(outcome.result):
            raise Skipped("outputs are nested")
        self.call = _call(evaluator.target.call, arguments.args, arguments.kwargs, tuple(slots), _positions(outcome.result, outcome.carrying))
        self.paired = paired(self.call, self.cotangents)

    def gradients(self, call: Call) -> tuple[Tensor | None, ...]:
        """Return autograd's gradients of `call`, which returns what `self.call` does."""
        return self.both(call)[1]

    def both(self, call: Call) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Return the outputs of `call` and its gradients, from one forward and one backward."""
        leaves = [p.clone().requires_grad_() for p in self.points]
        outputs = call(*leaves)
        return tuple(y.detach() for y in outputs), torch.autograd.grad(outputs, leaves, self.cotangents, allow_unused=True)


def _positions(result: Any, carrying: list[int]) -> tuple[int, ...]:
    """Return where in the returned tuple the outputs lie that carry gradients; empty for a single tensor."""
    if isinstance(result, Tensor):
        return ()
    tensors = [i for i, item in enumerate(result) if isinstance(item, Tensor)]
    return tuple(tensors[i] for i in carrying)


def _nested(result: Any) -> bool:
    return not isinstance(result, Tensor) and (not isinstance(result, (tuple, list)) or any(trees.is_container(item) for item in result))


def _call(op: Call, args: tuple[Any, ...], kwargs: dict[str, Any], slots: tuple[Any, ...], positions: tuple[int, ...]) -> Call:
    def call(*inputs: Any) -> Any:
        full = list(args)
        for slot, value in zip(slots, inputs):  # noqa: B905 -- the compiler does not trace strict=
            full[slot] = value
        result = op(*full, **kwargs)
        return tuple(result[i] for i in positions) if positions else (result,)

    return fresh(call)


def paired(call: Call, cotangents: tuple[Tensor, ...]) -> Call:
    """Return the sum of what `call` returns, each paired with its cotangent, as a function."""

    def scalar(*inputs: Any) -> Any:
        total = 0.0
        for y, c in zip(call(*inputs), cotangents):  # noqa: B905 -- likewise
            total = total + (y * c).sum()
        return total

    return fresh(scalar)


def fresh(function: Call) -> Call:
    """Return the function with a code object of its own: the compiler counts recompilations for each code object."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_NUMBER)}")
    new = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def compiled(function: Call, backend: Any, *, fullgraph: bool = True) -> Call:
    """Return ``torch.compile(function)``."""
    return torch.compile(function, backend=backend, fullgraph=fullgraph)


def attempt(work: Callable[[], Any]) -> Any:
    """Return ``work()``.

    Raises:
        Unsupported: for whatever the compiler raises, at the first call or in the first backward.
    """
    try:
        return work()
    except Exception as error:
        text = str(error).strip().splitlines()
        raise Unsupported(f"{type(error).__name__}: {text[0] if text else ''}"[:200]) from error


def gap(paths: tuple[str, ...], got: Any, expected: Any) -> Gap | None:
    """Return the largest difference in the first pair of results that differ."""

    for path, a, b in zip(paths, got, expected, strict=True):
        if a is None or b is None or a.shape != b.shape:
            other = b if a is None else a
            if other is None or ((a is None or b is None) and not bool(other.any())):
                continue
            return unlike(path, a, b)
        if not a.numel() or not differentiable(a) or not bool(torch.isfinite(b).all()):
            continue
        allowed = tolerance.analytic(b.dtype, float(b.detach().abs().max()))
        found = beyond(path, a.detach(), b.detach(), differences(a, b), allowed)
        if found is not None:
            return found
    return None
