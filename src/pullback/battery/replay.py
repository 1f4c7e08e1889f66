"""Run backward again with one kept tensor taken away or changed: does the gradient notice?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import trees
from ..capture.calls import Function, methods_of
from ..capture.observed_calls import replaced
from ..capture.saved import reachable
from .evaluate import Evaluator, Outcome, UserCodeError
from .probe import Probe
from .tensors import copy_tensor, differentiable, same

SUBSETS = 8
Alter = Callable[[str, Tensor], Any]


class AlteredContext:
    """Stands before `ctx` in backward: what is kept reads as `alter(path, tensor)`, everything else is the context's own."""

    def __init__(self, context: Any, alter: Alter) -> None:
        object.__setattr__(self, "_context", context)
        object.__setattr__(self, "_alter", alter)

    @functools.cached_property
    def saved_tensors(self) -> tuple[Any, ...]:
        saved = self._context.saved_tensors
        return tuple(self._alter(f"saved_tensors[{i}]", t) if isinstance(t, Tensor) else t for i, t in enumerate(saved))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors  # the name of torch 0.3, which torch still takes

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        if name not in vars(self._context):
            return value
        leaves = [leaf for _, leaf in trees.leaves(value) if isinstance(leaf, Tensor)]
        if not leaves:
            return value
        return trees.map_leaves(lambda path, leaf: self._alter(path, leaf) if isinstance(leaf, Tensor) else leaf, value, f"ctx.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._context, name, value)


@contextmanager
def altered(functions: list[type[Function]], alter: Alter) -> Iterator[None]:
    """Give backward of the Functions an altered context while the context manager is open."""
    with ExitStack() as stack:
        for function in functions:
            for name in ("backward", "vjp"):
                if name in methods_of(function):
                    stack.enter_context(replaced(function, name, _with_altered(getattr(function, name), alter)))
        yield


def _with_altered(method: Callable[..., Any], alter: Alter) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(ctx: Any, *grad_outputs: Any) -> Any:
        return method(AlteredContext(ctx, alter), *grad_outputs)

    return run


@dataclass(slots=True)
class Setting:
    """One way to call the op: which inputs require grad, and other values of flags and numbers."""

    evaluator: Evaluator
    subset: tuple[str, ...]
    cotangents: list[Tensor]
    expected: list[Tensor | None]
    effects: list[Tensor | None]
    second: list[Tensor | None] | None = None


class Replay:
    """Replays of one case.

    Args:
        probe: The case. Its gradients must repeat.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.functions = probe.baseline.functions
        self.settings = [s for s in map(self._setting, *zip(*_ways(probe), strict=True)) if s is not None]

    @property
    def faithful(self) -> bool:
        """Whether a replay with nothing altered gives the same gradients."""
        return bool(self.settings) and all(self.unchanged(s, lambda _, t: t) for s in self.settings)

    def _setting(self, evaluator: Evaluator, subset: tuple[str, ...]) -> Setting | None:
        try:
            outcome = evaluator.forward(requires_grad=subset)
            if not outcome.carrying:
                return None
            cotangents = self.probe.cotangents(outcome)
            expected = evaluator.vjp(outcome, [copy_tensor(c) for c in cotangents])
        except UserCodeError:
            return None
        setting = Setting(evaluator, subset, cotangents, expected, _effects(outcome))
        setting.second = self._second(setting)
        return setting

    def unchanged(self, setting: Setting, alter: Alter) -> bool:
        """Return whether the gradients, and those of second order, are the same bits when what is kept reads otherwise."""
        evaluator = setting.evaluator
        try:
            with altered(self.functions, alter):
                outcome: Outcome = evaluator.forward(requires_grad=setting.subset)
                got = evaluator.vjp(outcome, [copy_tensor(c) for c in setting.cotangents])
                if not all(map(same, got, setting.expected)) or not _all_same(_effects(outcome), setting.effects):
                    return False
                return setting.second is None or _all_same(self._second(setting), setting.second)
        except UserCodeError:
            return False

    def _second(self, setting: Setting) -> list[Tensor | None] | None:
        """Return the gradients of the gradients with respect to inputs and cotangents, or None where there are none."""
        evaluator = setting.evaluator
        if evaluator.through_backward:
            return None
        try:
            outcome = evaluator.forward(requires_grad=setting.subset)
            cotangents = [copy_tensor(c).requires_grad_(differentiable(c)) for c in setting.cotangents]
            first = [g for g in evaluator.vjp(outcome, cotangents, create_graph=True) if g is not None and g.requires_grad]
            if not first:
                return None
            roots = [*(r for r in outcome.arguments.roots if r.requires_grad), *cotangents]
            return list(torch.autograd.grad(first, roots, [torch.ones_like(g) for g in first], allow_unused=True))
        except Exception:
            # Whatever the double backward raises, it has no second derivative to compare.
            return None

    def unread(self, path: str) -> bool:
        """Return whether no gradient changes when the kept tensor at `path` is not there at all."""
        # x[None] is x with an axis more, and so None in the place of an index may go unnoticed; an object of no use may not.
        return all(self.unchanged(s, lambda p, t, gone=gone: gone if p == path else t) for gone in (None, object()) for s in self.settings)

    def values_unread(self, path: str) -> bool | None:
        """Return whether no gradient changes whatever values the kept tensor at `path` has; None where no other values can be tried safely."""
        tried = False
        for setting in self.settings:
            for poison in POISONS:
                reached: list[bool] = []

                def alter(p: str, t: Tensor, poison: Callable[[Tensor], Tensor] = poison, reached: list[bool] = reached) -> Tensor:
                    if p != path:
                        return t
                    other = poison(t)
                    reached.append(not same(other, t))
                    return other

                if not self.unchanged(setting, alter):
                    return False
                tried = tried or any(reached)
        return True if tried else None


def _effects(outcome: Outcome) -> list[Tensor | None]:
    """Return copies of what backward may have written besides gradients: attributes of arguments (``main_grad``), tensors in objects, ``.grad``."""
    found: list[Tensor | None] = []
    for value in (*outcome.arguments.args, *outcome.arguments.kwargs.values()):
        for _, tensor in reachable(value):
            found += [copy_tensor(tensor), None if tensor.grad is None else copy_tensor(tensor.grad)]
    return found


def _all_same(a: list[Tensor | None] | None, b: list[Tensor | None] | None) -> bool:
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(map(same, a, b))


def _ways(probe: Probe) -> list[tuple[Evaluator, tuple[str, ...]]]:
    """Return evaluators with the inputs that require grad: subsets of the wanted ones; then each flag flipped, each number 0 or 1 replaced."""
    paths = tuple(leaf.path for leaf in probe.native.wanted)
    subsets = [paths, *((p,) for p in paths), *(tuple(q for q in paths if q != p) for p in paths)]
    chosen = list(dict.fromkeys(s for s in subsets if s))[:SUBSETS]
    ways: list[tuple[Evaluator, tuple[str, ...]]] = [(probe.native, s) for s in chosen]
    for name, value in probe.native.named:
        for path, leaf in trees.leaves(value, name):
            other = _other(leaf)
            if other is not None:
                ways.append((probe.native.variant({path: other}), paths))
    return ways


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float) and value in (0.0, 1.0):
        return 0.5
    return None


def _nan(t: Tensor) -> Tensor:
    return torch.full_like(t, torch.nan) if differentiable(t) else _reversed(t)


def _large(t: Tensor) -> Tensor:
    return torch.full_like(t, 1e4) if differentiable(t) else _reversed(t)


def _negative(t: Tensor) -> Tensor:
    return torch.full_like(t, -1e4) if differentiable(t) else _zeros(t)


def _no(t: Tensor) -> Tensor:
    return torch.zeros_like(t) if differentiable(t) else t


def _yes(t: Tensor) -> Tensor:
    return torch.ones_like(t) if differentiable(t) else t


def _reversed(t: Tensor) -> Tensor:
    """The same values in another order: indices stay in range. A mask is inverted."""
    if t.dtype is torch.bool:
        return ~t
    return t.flatten().flip(0).view(t.shape) if t.dim() else _zeros(t)


def _zeros(t: Tensor) -> Tensor:
    return torch.zeros_like(t) if t.dtype is not torch.bool and t.numel() and bool((t >= 0).all()) else t


POISONS = (_nan, _large, _negative, _reversed, _no, _yes)
"""Other values for a kept tensor: also the numbers that code compares with. Integers may be indices into memory: they are only permuted or zeroed."""
