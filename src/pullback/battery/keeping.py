"""What the calls of a Function keep until backward, sorted by where it came from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from .. import _compat, trees
from ..capture.calls import forward_names, name_of, positional_names
from ..capture.observed_calls import ForwardCall, observed_forward
from ..capture.saved import Kept, kept_by, reachable
from .evaluate import Evaluator, Outcome
from .probe import Probe

Source = Literal["argument", "output", "view of an output", "reachable", "persistent", "inside"]


@dataclass(frozen=True, slots=True)
class Origin:
    """One kept tensor and where it came from.

    Args:
        kept: The tensor.
        source: ``"argument"`` (or a view of one), ``"output"`` (the very object), ``"view of an output"`` (autograd's view of it), ``"reachable"``
        from an
            argument's attributes, objects or closures, ``"persistent"`` (the same memory in two calls), or made ``"inside"`` forward.
        argument: Name of the argument, for the first.
    """

    kept: Kept
    source: Source
    argument: str = ""

    @property
    def has_graph(self) -> bool:
        """Whether the tensor has a graph of its own; a view without grad of a buffer that was written since has none, and torch raises if asked."""
        with contextlib.suppress(RuntimeError):
            return self.kept.tensor.grad_fn is not None
        return False


def observe(probe: Probe, evaluator: Evaluator | None = None, **how: object) -> tuple[Outcome, list[ForwardCall]]:
    """Return one forward and the calls of the checked Functions in it.

    Raises:
        UserCodeError: if forward raises.
    """
    with observed_forward(*probe.baseline.functions) as calls:
        outcome = (evaluator or probe.native).forward(**how)  # type: ignore[arg-type]
    return outcome, [c for c in calls if c.context is not None]


def origins(probe: Probe) -> list[list[Origin]]:
    """Return what each call of a checked Function keeps in one forward of the given case; computed once."""
    if "origins" not in probe.memo:
        outcome, calls = observe(probe)
        again, others = observe(probe)
        persistent = {_compat.storage_id(k.tensor) for c in others for k in _kept(c)}
        probe.memo["origins"] = ([list(_sorted(probe, call, persistent)) for call in calls], outcome, calls, again, others)
    return probe.memo["origins"][0]


def _kept(call: ForwardCall) -> list[Kept]:
    with contextlib.suppress(RuntimeError):
        return kept_by(call.context, call.function)
    return []


def argument_tensors(probe: Probe, call: ForwardCall) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among a call's arguments, containers included, with the user's names."""
    names = positional_names(forward_names(call.function), len(call.arguments))
    for name, value in zip(names, call.arguments, strict=True):
        yield from ((path, leaf) for path, leaf in trees.leaves(value, name) if isinstance(leaf, Tensor))


def _sorted(probe: Probe, call: ForwardCall, persistent: set[int]) -> Iterator[Origin]:
    arguments = list(argument_tensors(probe, call))
    names = {_compat.storage_id(t): path for path, t in arguments}
    attached = {_compat.storage_id(t) for value in call.arguments for _, t in reachable(value)} - set(names)
    outputs = {id(t) for _, t in trees.leaves(call.returned) if isinstance(t, Tensor)}
    output_storages = {_compat.storage_id(t) for _, t in trees.leaves(call.returned) if isinstance(t, Tensor)}
    objects = {id(value) for value in call.arguments if not isinstance(value, Tensor)}
    for kept in _kept(call):
        key = _compat.storage_id(kept.tensor)
        if not kept.saved and id(vars(call.context).get(kept.attribute)) in objects:
            yield Origin(kept, "reachable")
        elif id(kept.tensor) in outputs and not any(kept.tensor is t for _, t in arguments):
            yield Origin(kept, "output")
        elif key in names:
            yield Origin(kept, "argument", names[key])
        elif key in attached:
            yield Origin(kept, "reachable")
        elif id(_compat.base_of(kept.tensor)) in outputs:
            yield Origin(kept, "view of an output")
        elif kept.saved and key in output_storages:
            yield Origin(kept, "output")
        else:
            yield Origin(kept, "persistent" if key in persistent else "inside")


def shown(tensor: Tensor) -> str:
    """Return a tensor as ``float64[3, 4]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def owner(probe: Probe) -> str:
    """Return the name of the Function that findings about forward and ctx speak of."""
    return name_of(probe.function) if probe.function else probe.target.name
