"""Tensors that were written in place: one that backward needs, a leaf, a view."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import Tensor

from ... import _compat
from ...capture.graph import function_of
from ...capture.saved import saved_names
from ..places import expressions_at, name_of_memory, name_of_tensor, text_of, value_of
from .journal import Note
from .sight import Explanation, Sight, applied, backward_place, code_of, forward_place, functions, short, value

_SAVED = re.compile(
    r"modified by an inplace operation: \[(?P<value>.+?)\](?:, which is output (?P<output>\d+) of (?P<op>[\w:]+),)? "
    r"is at version (?P<now>\d+); expected version (?P<saved>\d+)"
)
_VIEW = re.compile(r"^Output (?P<number>\d+) of (?P<op>\w+) is a view")
_WRITTEN_AS = {"__setitem__": "item assignment", "__iadd__": "+=", "__isub__": "-=", "__imul__": "*=", "__itruediv__": "/=", "__idiv__": "/="}
_WRITTEN_AS |= {"__ifloordiv__": "//=", "__imod__": "%=", "__ipow__": "**=", "__imatmul__": "@=", "__iand__": "&=", "__ior__": "|=", "__ixor__": "^="}
_WRITTEN_AS |= {"__ilshift__": "<<=", "__irshift__": ">>="}
OUT_OF_PLACE = "write into a new tensor: x = x + 1 instead of x += 1, or x = x.clone() before the line that writes"


def explain(sight: Sight) -> Explanation | None:
    match = _SAVED.search(sight.text)
    if match is not None:
        return _saved(sight, match)
    if "leaf Variable that requires grad" in sight.text:
        return _leaf(sight)
    if "modified inplace" in sight.text and ("is a view" in sight.text or "A view was created" in sight.text):
        return _view(sight)
    if "marked as dirty during the forward" in sight.text:
        function = applied(sight)
        return Explanation(
            f"{short(function, 'a Function')} marks a tensor as dirty that its forward does not return",
            sight.place,
            (("forward", forward_place(function)),),
            "return the very tensor that was given to ctx.mark_dirty",
        )
    return None


def _saved(sight: Sight, match: re.Match[str]) -> Explanation:
    found = _needed(sight, int(match["saved"]), int(match["now"]))
    if found is None:
        subject = f"a tensor {match['value'].partition(' ')[2]}"
        return Explanation(f"{subject} that backward needs was modified by an inplace operation", sight.calling, (), OUT_OF_PLACE)
    node, name, tensor = found
    function = function_of(node)
    known = name_of_tensor(tensor, sight.frames) or name_of_memory(tensor, sight.frames)
    subject = known or f"{name} ({value(tensor)})"
    keeper = short(function, type(node).__name__)
    writes = sight.journal.writes_to(tensor, int(match["saved"]))
    step = _step_of(sight, tensor)
    if step is not None and not writes:
        return Explanation(
            f"{subject}, which {keeper} saved, was modified by an inplace operation: by optimizer.step() before this backward",
            sight.calling,
            (("written", step.place),),
            "call every backward before the step that moves the parameters; with two optimizers, both backwards first, then both steps",
        )
    inside = _writing_function(writes)
    fix = OUT_OF_PLACE
    if inside is not None:
        fix = f"forward of {short(inside)} writes into its argument: ctx.mark_dirty(it) and return it, or write into a clone"
    elif tensor.is_leaf and tensor.requires_grad:
        fix = "call backward before the parameter is written, or compute the forward anew after it"
    details: list[tuple[str, Any]] = [(f"{note.what}", note.place) for note in writes[:3]]
    if not writes:
        details.append(("written", "by something that cannot be seen from Python"))
    return Explanation(
        f"{subject}, which {keeper} saved for backward, was modified by an inplace operation" + (f" ({_operation(writes)})" if writes else ""),
        writes[0].place if writes else sight.calling,
        (*details[1:], ("needed by", backward_place(function)), ("backward", sight.calling))
        if writes
        else (*details, ("needed by", backward_place(function))),
        fix,
    )


def _operation(writes: list[Note]) -> str:
    what = writes[0].what
    return _WRITTEN_AS.get(what, f"{what.strip('_')}_")


def _needed(sight: Sight, saved: int, now: int) -> tuple[Any, str, Tensor] | None:
    """Return the node that the engine could not run, and the tensor that it saved and that was written since."""
    running = sight.method[2].tb_frame.f_locals.get("ctx") if sight.method is not None else None
    for node in [running] if running is not None else reversed(sight.nodes):
        for name in _compat.saved_names(type(node)):
            if not _compat.is_stale(node, name):
                continue
            slots = _compat.saved_slots(node, name)
            function = function_of(node)
            names = saved_names(function, len(slots)) if function is not None else [name] * len(slots)
            for label, slot in zip(names, slots, strict=True):
                tensor = _compat.packed(slot)
                if isinstance(tensor, Tensor) and _compat.version_of(tensor) == now:
                    return node, label, tensor
    return None


def _step_of(sight: Sight, tensor: Tensor) -> Note | None:
    """Return the last step of the optimizer that moves a tensor's memory."""
    key = _compat.storage_id(tensor)
    for optimizer, note in sight.journal.steps.items():
        if any(_compat.storage_id(p) == key for group in optimizer.param_groups for p in group["params"]):
            return note
    return None


def _writing_function(writes: list[Note]) -> Any:
    codes = [note.code for note in writes]
    return next((f for f in functions() if code_of(vars(f).get("forward")) in codes), None) if writes else None


def _leaf(sight: Sight) -> Explanation:
    function = applied(sight)
    if function is not None:
        return Explanation(
            f"{short(function)} writes in place into an argument that is a leaf that requires grad",
            sight.place,
            (("forward", forward_place(function)),),
            "give it a computed tensor: X.apply(x.clone()); or write into a clone in forward, without ctx.mark_dirty",
        )
    name = _written_name(sight)
    return Explanation(
        f"{name or 'a tensor'} is a leaf that requires grad, and is modified by an in-place operation",
        sight.place,
        (),
        "to update a parameter: with torch.no_grad(): … around this line; to compute with it: "
        + (f"{name} = {name}.clone() first" if name.isidentifier() else "a clone of it"),
    )


def _written_name(sight: Sight) -> str:
    """Return how the reader calls the tensor that the line writes."""
    for node in expressions_at(sight.readers[-1]) if sight.readers else ():
        target = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
        target = target.target if isinstance(target, ast.AugAssign) else target
        if isinstance(target, ast.Call) and target.args:
            target = target.args[0]
        while isinstance(target, ast.Subscript):
            target = target.value
        try:
            if isinstance(value_of(target, sight.readers[-1].tb_frame), Tensor):
                return text_of(target)
        except LookupError:
            continue
    return ""


def _view(sight: Sight) -> Explanation:
    match = _VIEW.search(sight.text)
    name = _written_name(sight) or "a view"
    if match is None:
        return Explanation(
            f"{name} is a view that was made under no_grad, and is modified inplace with grad mode on",
            sight.place,
            tuple(("block", note.place) for note in list(sight.journal.cuts.values())[-1:] if note.what in ("no_grad", "inference_mode")),
            "make the view and write it on the same side: both under no_grad, or both outside; or clone the view",
        )
    function = sight.function(match["op"].removesuffix("Backward"))
    maker = short(function, match["op"])
    details = (("forward", forward_place(function)),)
    if "multiple views" in sight.text:
        fix = f"{name} = {name}.clone() before it is written" + (f", or return copies from {maker}.forward" if function is not None else "")
        return Explanation(
            f"{name} is output {match['number']} of {maker}, which returns several views, and is modified inplace", sight.place, details, fix
        )
    return Explanation(
        f"{name} is a view that {maker} returns, and is modified inplace, which would pass by its backward",
        sight.place,
        details,
        f"return a copy from {maker}.forward (x.view(…).clone()), or write into {name}.clone()",
    )
