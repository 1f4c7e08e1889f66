"""Nodes of the autograd graph, and what they save."""

from __future__ import annotations

from typing import Any


def checkpointed(unpack: Any) -> dict[str, Any]:
    """The tensors that torch.utils.checkpoint keeps to run its function once more, by name, from a saved tensor's unpack hook; empty for other hooks.

    Fallback: nothing is found where the closures have other names. Retire when a checkpoint can be asked.
    """
    import torch

    if getattr(unpack, "__module__", "") != "torch.utils.checkpoint":
        return {}
    frame = _closed_over(unpack, "frame")
    older = getattr(getattr(getattr(frame, "input_saver", None), "grad_fn", None), "saved_tensors", ())
    inputs = [packed(value) if type(value).__name__ == "SavedTensor" else value for value in getattr(frame, "saved_args", older)]
    found = {f"input {i} of its checkpoint": value for i, value in enumerate(inputs)}
    found["random state of its checkpoint"] = _closed_over(getattr(frame, "recompute_fn", None), "fwd_cpu_state")
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _closed_over(function: Any, name: str) -> Any:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    try:
        return function.__closure__[names.index(name)].cell_contents if name in names else None
    except ValueError:  # the cell is empty
        return None


def results_of(node: Any) -> tuple[Any, ...]:
    """What autograd knows of the tensors that a node's forward gave: objects with `shape` and `dtype`.

    Private: `Node._input_metadata`. Fallback: none is known. Retires: none known.
    """
    return getattr(node, "_input_metadata", ())


def made_at(node: Any) -> int:
    """A number that grows with every node that a thread makes; leaves have the largest.

    Private: `Node._sequence_nr`. Fallback: 0, so that nodes stay in the order of the walk. Retires: none known.
    """
    number = getattr(node, "_sequence_nr", None)
    return number() if number is not None else 0


def saved_names(kind: type) -> list[str]:
    """The names of what nodes of a kind save: ``self``, ``other``, ``result``; ``tensors`` for custom Functions.

    Private: `Node._raw_saved_*`. Fallback: nothing is saved. Retires: none known.
    """
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]


def saved_slots(node: Any, name: str) -> tuple[Any, ...]:
    """The saved tensors under one of `saved_names`, still packed; empty once backward has freed them.

    Private: `Node._raw_saved_*`. Fallback: none. Retires: none known.
    """
    try:
        slots = getattr(node, f"_raw_saved_{name}", None)
    except RuntimeError:
        return ()
    return tuple(slots) if isinstance(slots, (tuple, list)) else (slots,) if slots is not None else ()


def packed(slot: Any) -> Any:
    """What a saved tensor really keeps: the tensor, or what a saved-tensor hook made of it; None once it is freed. No hook runs.

    Private: `SavedTensor.data`. Fallback: the unpacked tensor, which runs the hook. Retires: none known.
    """
    try:
        return slot.data if hasattr(slot, "data") else slot.unpack()
    except RuntimeError:
        return None


def made_by(node: Any) -> list[str]:
    """The stack at which a node was made, outermost first, as `traceback.format_stack` writes it; noted only while anomaly mode is on.

    Fallback: none is known. Retire when torch gives `Node.metadata["traceback_"]` a public name.
    """
    return list(node.metadata.get("traceback_", ()))


def is_stale(node: Any, name: str) -> bool:
    """Whether a node's saved tensor under one of `saved_names` was written in place since it was saved.

    Fallback: none is seen. Retire when a `SavedTensor` can be asked.
    """
    try:
        getattr(node, "saved_tensors" if name == "tensors" else f"_saved_{name}")
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False
