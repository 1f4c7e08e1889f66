"""A graph that ends too early: where it was cut, and why a gradient is None."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ...capture.calls import Function
from ...report.clean import clean
from ..places import expressions_at, text_of, tree_of, value_of
from .journal import Note
from .sight import Explanation, Sight, backward_place, forward_place, functions, short

_WHAT = {
    "detach": ".detach() leaves the graph",
    "data": ".data leaves the graph",
    "numpy": ".numpy() leaves the graph",
    "item": ".item() makes a Python number of it",
    "tolist": ".tolist() makes Python numbers of it",
    "no_grad": "what is computed under torch.no_grad() has no graph",
    "inference_mode": "what is computed under torch.inference_mode() has no graph",
    "argmax": ".argmax() has no gradient",
    "argmin": ".argmin() has no gradient",
}
_CASTS = ("long", "int", "short", "char", "byte", "bool", "to", "type")
_WEAK = ("item", "tolist", "no_grad", "inference_mode", "__gt__", "__lt__", "__ge__", "__le__")
_NONE = re.compile(r"'NoneType'|NoneType")


def explain(sight: Sight) -> Explanation | None:
    if "does not require grad and does not have a grad_fn" in sight.text:
        return _no_graph(sight)
    if "differentiated Tensor" in sight.text:
        return _unused(sight)
    if isinstance(sight.error, (AttributeError, TypeError)) and _NONE.search(sight.text):
        return _none(sight)
    return None


def _no_graph(sight: Sight) -> Explanation:
    once = next((note for note in reversed(sight.journal.backwards) if note.once), None)
    name = _root_name(sight)
    headline = f"{name} does not require grad and does not have a grad_fn"
    if once is not None and once is sight.journal.backwards[-1]:
        function = once.once[0]
        return Explanation(
            f"{headline}: {short(function)}.backward is marked once_differentiable, so that its gradient has no graph",
            sight.calling,
            (("first", once.place), ("backward", backward_place(function))),
            "take @once_differentiable off if backward consists of differentiable operations; else there is no second derivative",
        )
    returned = _list_forward(sight)
    if returned is not None:
        return Explanation(
            f"{headline}: {short(returned)}.forward returns a list, in which autograd does not look for tensors",
            sight.calling,
            (("forward", forward_place(returned)),),
            "return a tuple",
        )
    cuts = candidates(sight)
    if cuts:
        return _with_cuts(headline, sight.calling, cuts)
    frozen = _frozen(sight)
    reason = f"every parameter of {frozen} has requires_grad=False" if frozen else "nothing that it is computed from requires grad"
    return Explanation(
        f"{headline}: {reason}",
        sight.calling,
        (),
        f"{frozen}.requires_grad_(True), or do not call backward"
        if frozen
        else "x.requires_grad_() before the forward, for what gradients are wanted of",
    )


def _with_cuts(headline: str, place: Any, cuts: list[Note]) -> Explanation:
    first = cuts[0]
    verb = "is cut" if len(cuts) == 1 else "is cut at one of these lines"
    return Explanation(
        f"{headline}: its graph {verb}",
        place,
        tuple((("cut by", "or by")[i > 0], note.place) for i, note in enumerate(cuts)),
        f"{_said(first.what)}: {_instead(first.what)}",
    )


def _said(what: str) -> str:
    if what in _CASTS:
        return "a cast to a dtype that is not floating has no gradient"
    return _WHAT.get(what, "a comparison has no gradient")


def _instead(what: str) -> str:
    if what in ("no_grad", "inference_mode"):
        return "move the forward out of the block"
    if what in ("detach", "data"):
        return "leave it out where the gradient must pass"
    if what in ("numpy", "item", "tolist"):
        return "compute with tensors as far as the loss"
    return "use a soft form (softmax for argmax, sigmoid for a comparison), or a surrogate gradient"


def candidates(sight: Sight) -> list[Note]:
    """Return the noted lines that can have cut the graph, the likeliest first: those on the way to what backward was called on."""
    last = sight.journal.backwards[-1].order if sight.journal.backwards else 0
    notes = [note for note in reversed(sight.journal.cuts.values()) if note.order > last]
    lines = _lines_behind(sight)
    on_the_way = [note for note in notes if note.at in lines]
    if on_the_way:
        return on_the_way[:1]
    inside = [note for note in notes if note.what in ("no_grad", "inference_mode") and _holds(note, lines)]
    if inside:
        return inside[:1]
    return [note for note in notes if note.what not in _WEAK][:3]


def _lines_behind(sight: Sight) -> set[tuple[str, int]]:
    """Return the lines that assign to what the line of the error reads, and to what those read, in the functions that were running."""
    found: set[tuple[str, int]] = set()
    for entry in sight.readers[-2:]:
        path = entry.tb_frame.f_code.co_filename
        body = _body_of(path, entry.tb_lineno)
        if body is None:
            continue
        statements = [node for node in ast.walk(body) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
        here = [s for s in statements if s.lineno <= entry.tb_lineno <= (s.end_lineno or s.lineno)]
        wanted = {node.id for s in here for node in ast.walk(s) if isinstance(node, ast.Name)}
        found |= {(path, line) for s in here for line in _span(s)}
        for statement in sorted(statements, key=lambda s: -s.lineno):
            if statement.lineno < entry.tb_lineno and _targets(statement) & wanted:
                wanted |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
                found |= {(path, line) for line in _span(statement)}
    return found


def _body_of(path: str, line: int) -> ast.AST | None:
    """Return the innermost function around a line, or the module."""
    tree = tree_of(path)
    if tree is None:
        return None
    around = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.lineno <= line <= (n.end_lineno or n.lineno)]
    return around[-1] if around else tree


def _targets(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {node.id for target in targets if target is not None for node in ast.walk(target) if isinstance(node, ast.Name)}


def _span(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _holds(note: Note, lines: set[tuple[str, int]]) -> bool:
    """Whether one of the lines stands in the block that begins at a note."""
    path, line = note.at
    tree = tree_of(path)
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.With) and line in range(n.lineno, n.body[0].lineno + 1)] if tree is not None else []
    return any((path, inner) in lines for block in blocks for inner in range(block.lineno, (block.end_lineno or block.lineno) + 1))


def _root_name(sight: Sight) -> str:
    for node in expressions_at(sight.readers[-1]) if sight.readers else ():
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr == "backward" and not _is_module(function.value, sight.readers[-1].tb_frame):
                return text_of(function.value)
            if node.args:
                return text_of(node.args[0])
    return "element 0 of tensors"


def _is_module(node: ast.AST, frame: FrameType) -> bool:
    try:
        return not isinstance(value_of(node, frame), Tensor)
    except LookupError:
        return isinstance(node, ast.Attribute) and node.attr == "autograd"


def _list_forward(sight: Sight) -> type[Function] | None:
    """Return a Function whose forward returns a list, and that is applied on the way to what backward was called on."""
    names = set(_applied_on(_lines_behind(sight)))
    for function in functions() if names else ():
        code = getattr(getattr(function, "forward", None), "__code__", None)
        if function.__name__ not in names or code is None:
            continue
        body = _body_of(code.co_filename, code.co_firstlineno + 1)
        returns = [n for n in ast.walk(body) if isinstance(n, ast.Return)] if isinstance(body, ast.FunctionDef) else []
        if returns and all(isinstance(r.value, (ast.List, ast.ListComp)) for r in returns):
            return function
    return None


def _applied_on(lines: set[tuple[str, int]]) -> Iterator[str]:
    """Yield the names of the classes whose apply is called on lines."""
    for path in {path for path, _ in lines}:
        tree = tree_of(path)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Attribute) and node.attr == "apply" and (path, node.lineno) in lines:
                yield text_of(node.value).rpartition(".")[2]


def _frozen(sight: Sight) -> str:
    """Return the name of a module of the reader's frames none of whose parameters requires grad."""
    for frame in sight.frames:
        for name, held in list(frame.f_locals.items()):
            if isinstance(held, torch.nn.Module):
                parameters = list(held.parameters())
                if parameters and not any(p.requires_grad for p in parameters):
                    return clean(name, limit=60)
    return ""


def _unused(sight: Sight) -> Explanation:
    match = re.search(r"at index (?P<index>\d+)", sight.text)
    index = int(match["index"]) if match is not None else None
    frame = sight.passed("autograd/__init__.py", "grad")
    inputs = frame.f_locals.get("inputs", ()) if frame is not None else ()
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    if index is None:
        index = next((i for i, tensor in enumerate(inputs) if isinstance(tensor, Tensor) and not tensor.requires_grad), 0)
    tensor = inputs[index] if index < len(inputs) else None
    name = next(
        (clean(n, limit=60) for f in sight.frames for n, held in list(f.f_locals.items()) if held is tensor and tensor is not None), f"input {index}"
    )
    if "does not require grad" in sight.text:
        return Explanation(
            f"{name}, one of the differentiated Tensors, does not require grad",
            sight.place,
            (),
            f"{name}.requires_grad_() before the forward",
        )
    cuts = candidates(sight)
    details = tuple((("cut by", "or by")[i > 0], note.place) for i, note in enumerate(cuts))
    return Explanation(
        f"{name}, a differentiated Tensor, appears to not have been used in the graph" + (", which is cut" if cuts else ""),
        sight.place,
        details,
        f"{_said(cuts[0].what)}: {_instead(cuts[0].what)}"
        if cuts
        else f"compute the output from {name} itself, not from a copy; or allow_unused=True gives None",
    )


def _none(sight: Sight) -> Explanation | None:
    """Explain what is computed with a gradient that is None."""
    if not sight.readers:
        return None
    entry = sight.readers[-1]
    for node in expressions_at(entry):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            try:
                tensor = value_of(node.value, entry.tb_frame)
            except LookupError:
                continue
            if isinstance(tensor, Tensor) and not (tensor.is_leaf and tensor.grad is not None):
                return _no_gradient(sight, tensor, text_of(node.value))
    return None


def _no_gradient(sight: Sight, tensor: Tensor, name: str) -> Explanation:
    headline = f"{name}.grad is None"
    if not tensor.requires_grad:
        return Explanation(f"{headline}: {name} does not require grad", sight.place, (), f"{name}.requires_grad_() before the forward")
    if not tensor.is_leaf:
        made = type(tensor.grad_fn).__name__.removesuffix("0").removesuffix("Backward")
        return Explanation(
            f"{headline}: {name} is not a leaf but computed (by {made}), and backward keeps gradients of leaves only",
            sight.place,
            (),
            f"make the leaf last: {name} = ….detach().requires_grad_(); or {name}.retain_grad() before backward",
        )
    if not sight.journal.backwards:
        return Explanation(f"{headline}: no backward has run yet", sight.place, (), "loss.backward() before it is read")
    last = sight.journal.backwards[-1]
    notes = [note for note in reversed(sight.journal.cuts.values()) if note.what not in _WEAK]
    before = [note for note in notes if note.order < last.order][:3]
    if not before:
        return Explanation(
            f"{headline}: what backward was called on does not depend on it, or its gradient was cleared since",
            sight.place,
            (("backward", last.place),),
            f"compute the loss from {name} itself, not from a copy of it, and read the gradient before zero_grad",
        )
    explanation = _with_cuts(f"{headline} after backward", sight.place, before)
    return Explanation(explanation.headline, explanation.place, (*explanation.details, ("backward", last.place)), explanation.fix)
