"""What a backward returned that the engine cannot take."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...capture.calls import Function
from ...report.clean import clean
from .. import measures
from .sight import Explanation, Sight, arguments_of, backward_place, forward_place, short

_COUNT = re.compile(r"function (?P<name>\w+)Backward returned an incorrect number of gradients \(expected (?P<expected>\d+), got (?P<got>\d+)\)")
_INVALID = re.compile(r"Function (?P<name>\w+)Backward returned an invalid gradient at index (?P<index>\d+) - (?P<what>.+)", re.DOTALL)


def explain(sight: Sight) -> Explanation | None:
    for rule in (_count, _invalid, _not_a_tensor, _complex):
        found = rule(sight)
        if found is not None:
            return found
    return None


def _count(sight: Sight) -> Explanation | None:
    match = _COUNT.search(sight.text)
    if match is None:
        return None
    function, expected = sight.function(match["name"]), int(match["expected"])
    names = arguments_of(function)
    shape = ", ".join(f"grad_{name.lstrip('*')}" for name in names) if len(names) == expected else f"{expected} gradients"
    return Explanation(
        f"{match['name']}.backward returned an incorrect number of gradients: {match['got']}, "
        f"where forward takes {measures.count(expected, 'argument')}",
        backward_place(function),
        (("forward", forward_place(function)), ("backward", sight.calling)),
        f"return {shape}, as a tuple, with None for an argument that has no gradient",
    )


def _invalid(sight: Sight) -> Explanation | None:
    match = _INVALID.search(sight.text)
    if match is None:
        return None
    function, index = sight.function(match["name"]), int(match["index"])
    names = arguments_of(function)
    name = names[index] if index < len(names) else f"argument {index + 1}"
    what = clean(match["what"].strip(), limit=160)
    fix = (
        f"grad_{name}.to({name}.device), or compute it there"
        if "device" in what
        else f"return a gradient of the shape of {name}: sum over what was broadcast, and undo a reshape (grad_{name}.sum_to_size({name}.shape))"
    )
    return Explanation(
        f"{match['name']}.backward returned an invalid gradient for {name}: {what}",
        backward_place(function),
        (("backward", sight.calling),),
        fix,
    )


def _not_a_tensor(sight: Sight) -> Explanation | None:
    match = re.search(r"expected Variable or None \(got (?P<type>\w+)\)", sight.text)
    if match is None:
        return None
    function = _only_function(sight, lambda function: True)
    return Explanation(
        f"{short(function, 'a Function')}.backward returned a {match['type']} where a gradient must be a tensor or None",
        backward_place(function),
        (("backward", sight.calling),),
        "return a tensor of the argument's shape (torch.full_like(x, value)), or None where there is no gradient",
    )


def _complex(sight: Sight) -> Explanation | None:
    if "input_is_complex == grad_is_complex" not in sight.text:
        return None
    function = _only_function(sight, lambda function: True)
    return Explanation(
        f"{short(function, 'a Function')}.backward returned a complex gradient for a real argument, or the other way round",
        backward_place(function),
        (("backward", sight.calling),),
        "return grad.real for a real argument",
    )


def _only_function(sight: Sight, wanted: Callable[[type[Function]], bool]) -> type[Function] | None:
    """Return the Function of the graph, where there is just one that can be meant."""
    found = dict.fromkeys(f for node in sight.nodes if (f := getattr(node, "_forward_cls", None)) is not None and wanted(f))
    return next(iter(found)) if len(found) == 1 else None
