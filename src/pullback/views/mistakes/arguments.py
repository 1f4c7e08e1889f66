"""Methods that are called in another way than `apply` and the engine call them."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from ...capture.calls import Function, forward_names
from ...report.clean import clean
from ..places import expressions_at
from .sight import Explanation, Sight, applied, arguments_of, at, backward_place, forward_place, short


def explain(sight: Sight) -> Explanation | None:
    for rule in (_no_backward, _no_jvp, _arity):
        found = rule(sight)
        if found is not None:
            return found
    return None


def _no_backward(sight: Sight) -> Explanation | None:
    part = (
        "backward"
        if "implement either the backward or vjp" in sight.text
        else "forward"
        if "must implement the forward function" in sight.text
        else ""
    )
    if not part or not isinstance(sight.error, NotImplementedError):
        return None
    function = applied(sight)
    signature = "def backward(ctx, grad_output)" if part == "backward" else "def forward(ctx, x)"
    return Explanation(
        f"{short(function, 'a Function')} has no {part}",
        forward_place(function) if part == "backward" else sight.calling,
        ((part, sight.calling),) if part == "backward" else (),
        f"write it as a static method: @staticmethod {signature}"
        + ("; or apply it under torch.no_grad() if no gradient is wanted" if part == "backward" else ""),
    )


def _no_jvp(sight: Sight) -> Explanation | None:
    if "must implement the jvp function" not in sight.text:
        return None
    function = applied(sight)
    return Explanation(
        f"{short(function, 'a Function')} has no jvp, which forward mode needs (torch.func.jvp, jacfwd, hessian)",
        forward_place(function),
        (("apply", sight.calling),),
        "write it as a static method: @staticmethod def jvp(ctx, *tangents); or use reverse mode: torch.func.vjp, jacrev",
    )


def _arity(sight: Sight) -> Explanation | None:
    """Explain a TypeError about the arguments of a method."""
    if not isinstance(sight.error, TypeError):
        if "Legacy autograd function" in sight.text:
            return _instance(sight)
        return _without_ctx(sight) if isinstance(sight.error, AttributeError) else None
    if "missing a required argument" in sight.text and sight.passed("autograd/function.py", "bind_default_args") is not None:
        return _missing(sight, applied(sight))
    match = re.search(r"(?P<method>forward|backward)\(\) (?:missing|takes|got an unexpected keyword argument '(?P<key>\w+)'|got some)", sight.text)
    if match is None:
        return None
    function = applied(sight)
    if function is None:
        return _direct(sight, match)
    if not isinstance(inspect.getattr_static(function, match["method"]), staticmethod):
        return _not_static(sight, function, match["method"])
    if match["method"] == "backward":
        return _backward_arity(sight, function)
    return _keyword(sight, function, match["key"]) if match["key"] else _missing(sight, function)


def _missing(sight: Sight, function: type[Function] | None) -> Explanation:
    return Explanation(
        f"{short(function, 'apply')}.apply does not get the arguments of forward: {clean(sight.text, limit=160)}",
        sight.calling,
        (("forward", forward_place(function)),),
        f"{short(function, 'X')}.apply({', '.join(arguments_of(function))})",
    )


def _keyword(sight: Sight, function: type[Function], key: str) -> Explanation:
    known = key in {name.lstrip("*") for name in forward_names(function)}
    only = known and inspect.signature(function.forward).parameters[key].kind is inspect.Parameter.KEYWORD_ONLY
    return Explanation(
        f"{short(function)}.apply got the keyword argument {key}, which "
        + ("torch does not hand to forward by keyword" if known else "its forward does not have"),
        sight.calling,
        (("forward", forward_place(function)),),
        ("leave out the * in forward's signature and pass it" if only else "pass it" if known else "pass what forward takes")
        + f" by position: {short(function)}.apply({', '.join(arguments_of(function))})",
    )


def _not_static(sight: Sight, function: type[Function], method: str) -> Explanation:
    return Explanation(
        f"{short(function)}.{method} is not a static method",
        forward_place(function) if method == "forward" else backward_place(function),
        (("called at", sight.calling),),
        f"@staticmethod above it: def {method}(ctx, …), without self",
    )


def _backward_arity(sight: Sight, function: type[Function]) -> Explanation:
    match = re.search(r"takes (?P<takes>\d+) positional arguments? but (?P<given>\d+)", sight.text)
    outputs = int(match["given"]) - 1 if match is not None else 1
    grads = ", ".join(f"grad_output{i + 1}" for i in range(outputs)) if outputs > 1 else "grad_output"
    return Explanation(
        f"{short(function)}.backward must take ctx and one gradient for each of the {outputs} outputs of forward",
        backward_place(function),
        (("forward", forward_place(function)), ("backward", sight.calling)),
        f"def backward(ctx, {grads})",
    )


def _instance(sight: Sight) -> Explanation:
    frame = sight.passed("autograd/function.py", "__call__")
    owner = type(frame.f_locals.get("self")) if frame is not None else None
    function = owner if isinstance(owner, type) and issubclass(owner, Function) else None
    return Explanation(
        f"{short(function, 'a Function')} is made an instance and called, which torch no longer does (Legacy autograd function)",
        sight.place,
        (("forward", forward_place(function)),),
        f"{short(function, 'X')}.apply(…), with forward and backward as static methods that take ctx",
    )


def _direct(sight: Sight, match: re.Match[str]) -> Explanation | None:
    """Explain a call of forward or backward that does not go through apply."""
    name = re.search(r"([\w.<>]+)\." + match["method"] + r"\(\)", sight.text)
    function = sight.function(name[1].rpartition(".")[2]) if name is not None else None
    if function is None or not _calls(sight, match["method"]):
        return None
    return _apply_instead(sight, function, match["method"], sight.place)


def _calls(sight: Sight, method: str) -> bool:
    nodes = expressions_at(sight.readers[-1]) if sight.readers else []
    return any(isinstance(node, ast.Attribute) and node.attr == method for node in nodes)


def _apply_instead(sight: Sight, function: type[Function], method: str, place: Any) -> Explanation:
    return Explanation(
        f"{short(function)}.{method} is called directly, so that there is no ctx and no gradient",
        place,
        ((method, forward_place(function) if method == "forward" else backward_place(function)),),
        f"{short(function)}.apply({', '.join(arguments_of(function)) or '…'})" if method == "forward" else "loss.backward(), which calls it",
    )


def _without_ctx(sight: Sight) -> Explanation | None:
    """Explain a forward that meets something else in the place of ctx."""
    match = re.search(
        r"^'(?P<type>\w+)' object has no attribute '(save_for_backward|saved_tensors|needs_input_grad|mark_dirty|mark_non_differentiable)'",
        sight.text,
    )
    if match is None or sight.method is None or len(sight.readers) < 2 or match["type"].endswith("Backward"):
        return None
    function, method, entry = sight.method
    return _apply_instead(sight, function, method, sight.calling if sight.calling != at(entry) else at(sight.readers[-2]))
