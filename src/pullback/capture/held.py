"""What every node of a graph keeps until backward: saved tensors as they are packed, and tensors on `ctx`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .. import _compat
from .graph import function_of
from .saved import reachable, saved_names


@dataclass(frozen=True, slots=True)
class Held:
    """One tensor that a node keeps.

    Args:
        name: What the code calls it: ``"x"`` for ``ctx.save_for_backward(x)``, ``"ctx.cache['inv']"``; ``"self"`` or ``"result"`` for torch's
            operators.
        tensor: What is kept: the tensor, or a tensor in what a saved-tensor hook packed.
        how: ``"saved"``, ``"packed"`` (by a saved-tensor hook) or ``"ctx"``.
    """

    name: str
    tensor: Tensor
    how: str


def held_by(node: Any) -> Iterator[Held]:
    """Yield every tensor that a node keeps; hooks are not run. Nothing is left of saved tensors once backward has freed them."""
    function = function_of(node)
    again: dict[str, Tensor] = {}
    for name in _names(type(node)):
        slots = _compat.saved_slots(node, name)
        names = saved_names(function, len(slots)) if function is not None else _numbered(name, len(slots))
        for label, slot in zip(names, slots, strict=True):
            kept = _compat.packed(slot)
            if isinstance(kept, Tensor):
                yield Held(label, kept, "packed" if getattr(slot, "unpack_hook", None) is not None else "saved")
            elif kept is not None:
                yield from (Held(f"{label}{path}", tensor, "packed") for path, tensor in reachable(kept, ""))
                again |= _compat.checkpointed(getattr(slot, "unpack_hook", None))
    yield from (Held(name, tensor, "packed") for name, tensor in again.items())
    if function is None:
        return
    seen: set[int] = set()
    for attribute, value in vars(node).items():
        for path, tensor in reachable(value, f"ctx.{attribute}"):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield Held(path, tensor, "ctx")


def _numbered(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(_compat.saved_names(kind))
