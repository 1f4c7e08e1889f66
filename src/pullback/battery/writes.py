"""Which arguments forward and backward write into, by value, so that kernels and numpy show as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .evaluate import Outcome, UserCodeError
from .probe import Probe
from .tensors import copy_tensor, is_freed, same


@dataclass(frozen=True, slots=True)
class Write:
    """A write into one argument.

    Args:
        path: The argument.
        wanted: Whether it is differentiated.
        changed: How many elements changed.
        count: Of how many.
        reshaped: Shape before and after, where the tensor itself got another shape for the same number of elements.
    """

    path: str
    wanted: bool
    changed: int
    count: int
    reshaped: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def cached(self) -> bool:
        """Whether the tensor is held by a dict or object argument and needs no gradient: a cache or an accumulator that outlives the call."""
        return not self.wanted and ("['" in self.path or "." in self.path)


@dataclass(slots=True)
class Writes:
    """What one forward and one backward write into.

    Args:
        in_forward: Writes of forward.
        in_backward: Writes of backward.
        dirty: Paths of inputs that are returned as marked dirty.
        freed: Paths of tensors whose memory forward gives back, as reversible layers do; what backward puts there is no write.
    """

    in_forward: list[Write] = field(default_factory=list)
    in_backward: list[Write] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    freed: list[str] = field(default_factory=list)


def writes(probe: Probe) -> Writes:
    """Return what forward and backward of the call as given write into; computed once.

    Raises:
        UserCodeError: if forward raises.
    """
    return probe.once("writes", lambda: _observe(probe))


def _observe(probe: Probe) -> Writes:
    evaluator = probe.native
    _ = probe.baseline
    arguments = evaluator.arguments()
    before = [copy_tensor(t) for t in arguments.tensors]
    outcome = evaluator.forward(arguments)
    freed = [leaf.path for leaf, t in zip(probe.native.leaves, arguments.tensors, strict=True) if is_freed(t)]
    between = [copy_tensor(t) for t in arguments.tensors]
    found = Writes(_changes(probe, before, between, freed), [], _dirty(probe, outcome), freed)
    if outcome.carrying:
        with contextlib.suppress(UserCodeError):
            evaluator.vjp(outcome, probe.cotangents(outcome))
        found.in_backward = _changes(probe, between, arguments.tensors, freed)
    return found


def _changes(probe: Probe, before: Iterable[Tensor], after: Iterable[Tensor], freed: Sequence[str]) -> list[Write]:
    found: list[Write] = []
    for leaf, then, now in zip(probe.native.leaves, before, after, strict=True):
        if leaf.path in freed or same(now.detach(), then):
            continue
        count = then.numel()
        changed = int((now.detach() != then).sum()) if now.shape == then.shape and then.layout is torch.strided else count
        reshaped = (tuple(then.shape), tuple(now.shape)) if now.shape != then.shape and now.numel() == count else None
        found.append(Write(leaf.path, leaf.wanted, changed, count, reshaped))
    return found


def _dirty(probe: Probe, outcome: Outcome) -> set[str]:
    """Torch hands a dirty input out as the same object; an input returned unmarked comes out as a view of it."""
    outputs = {id(y) for y in outcome.outputs}
    direct = probe.target.direct
    tensors = zip(probe.native.leaves, outcome.arguments.tensors, strict=True)
    return {leaf.path for leaf, t in tensors if id(t) in outputs or (not direct and t.grad_fn is not None and t._version > 0)}
