"""A graph that was freed: a second backward, and saved tensors that are read too late."""

from __future__ import annotations

from typing import Any

from ... import _compat
from ...capture.graph import function_of
from .journal import Note
from .sight import Explanation, Sight, backward_place, short

ONE = "call backward once, on the sum of the losses"
KEEP = "loss.backward(retain_graph=True) in the first keeps the graph"


def explain(sight: Sight) -> Explanation | None:
    if "backward through the graph a second time" not in sight.text:
        return None
    if sight.passed("autograd/graph.py", "_engine_run_backward") is None:
        return Explanation(
            "saved tensors are read after backward has freed them",
            sight.place,
            _freed_by(list(sight.journal.backwards)[-1:]),
            "read them before backward, or keep them with backward(retain_graph=True)",
        )
    return _second(sight)


def _second(sight: Sight) -> Explanation:
    node = next((node for node in reversed(sight.nodes) if _is_freed(node)), None)
    if sight.method is not None:
        function, place = sight.method[0], sight.calling
    else:
        function, place = (function_of(node) if node is not None else None), sight.calling
    kept = short(function, type(node).__name__ if node is not None else "a part of it")
    earlier = _candidates(sight, node)
    loop = any(note.place == place for note in earlier)
    reason = "a tensor of the step before is part of this step's graph: h = h.detach() at the start of a step cuts it; " if loop else ""
    return Explanation(
        f"Trying to backward through the graph a second time: what {kept} saved was freed by the first backward",
        place,
        (*_freed_by(earlier), ("reads it", backward_place(function))),
        f"{reason}{ONE}; {KEEP}",
    )


def _candidates(sight: Sight, node: Any) -> list[Note]:
    """Return the earliest backward since the freed node was made; a later one cannot have freed it."""
    made = _compat.made_at(node) if node is not None else 0
    since = [note for note in sight.journal.backwards if not note.keeps and note.made >= made]
    return since[:1] or list(sight.journal.backwards)[-1:]


def _freed_by(notes: list[Note]) -> tuple[tuple[str, Any], ...]:
    return tuple(("freed by", note.place) for note in notes)


def _is_freed(node: Any) -> bool:
    for name in _compat.saved_names(type(node)):
        try:
            slots = getattr(node, f"_raw_saved_{name}")
        except RuntimeError:
            return True
        for slot in slots if isinstance(slots, (tuple, list)) else (slots,):
            try:
                slot.unpack()
            except RuntimeError as error:
                if "second time" in str(error):
                    return True
            except Exception:
                continue
    return False
