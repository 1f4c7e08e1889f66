"""What the methods of a Function do with `ctx`, and with grad mode off."""

from __future__ import annotations

import ast
import re

from ..places import expressions_at, statement_at, text_of
from .sight import Explanation, Sight, applied, at, forward_place, listed, short

_NO_ATTRIBUTE = re.compile(r"^'(?P<name>\w+)Backward' object has no attribute '(?P<attribute>\w+)'")
_SAVED = re.compile(r"save_for_backward can only save variables, but argument (?P<index>\d+) is of type (?P<type>\S+)")
_UNPACK = re.compile(r"(not enough|too many) values to unpack")


def explain(sight: Sight) -> Explanation | None:
    for rule in (_attribute, _saved, _unpack, _undefined, _grad_mode):
        found = rule(sight)
        if found is not None:
            return found
    return None


def _attribute(sight: Sight) -> Explanation | None:
    match = _NO_ATTRIBUTE.search(sight.text)
    if match is None or not isinstance(sight.error, AttributeError) or sight.method is None:
        return None
    function, method, entry = sight.method
    name = match["attribute"]
    return Explanation(
        f"{short(function)}.{method} reads ctx.{name}, which forward did not set on this way",
        at(entry),
        (("forward", forward_place(function)), ("called at", sight.calling)),
        f"set ctx.{name} on every way through forward, or save a tensor with ctx.save_for_backward and read ctx.saved_tensors",
    )


def _saved(sight: Sight) -> Explanation | None:
    match = _SAVED.search(sight.text)
    if match is None:
        return None
    function = applied(sight) or (sight.method[0] if sight.method is not None else None)
    return Explanation(
        f"{short(function, 'forward')} gives ctx.save_for_backward an argument of type {match['type']} "
        f"(number {int(match['index']) + 1}); it takes tensors only",
        forward_place(function) or sight.place,
        (("apply", sight.calling),),
        "keep what is no tensor on ctx: ctx.scale = scale"
        if match["type"] not in ("list", "tuple")
        else "give the tensors one by one: save_for_backward(*tensors)",
    )


def _unpack(sight: Sight) -> Explanation | None:
    if not isinstance(sight.error, ValueError) or _UNPACK.search(sight.text) is None or sight.method is None:
        return None
    function, method, entry = sight.method
    if not any(isinstance(node, ast.Attribute) and node.attr == "saved_tensors" for node in ast.walk(statement_at(entry) or ast.Pass())):
        return None
    return Explanation(
        f"{short(function)}.{method} unpacks another number of tensors from ctx.saved_tensors than forward saved ({sight.text})",
        at(entry),
        (("forward", forward_place(function)), ("called at", sight.calling)),
        "give ctx.save_for_backward the tensors that are read, in the same order; None is allowed",
    )


def _undefined(sight: Sight) -> Explanation | None:
    """Explain an arithmetic with None in a backward that does not take undefined gradients into account."""
    if not isinstance(sight.error, (TypeError, AttributeError)) or "NoneType" not in sight.text or sight.method is None:
        return None
    function, method, entry = sight.method
    if method not in ("backward", "vjp") or at(entry) != sight.place:
        return None
    missing = [name for name, held in entry.tb_frame.f_locals.items() if held is None]
    used = {text_of(node) for node in expressions_at(entry) if isinstance(node, ast.Name)}
    names = [name for name in missing if name in used]
    if not names:
        return None
    return Explanation(
        f"{short(function)}.{method} computes with {listed(names)}, which is None here",
        at(entry),
        (("called at", sight.calling),),
        f"an output that the loss does not use has no gradient: if {names[0]} is None, treat it as zero; "
        "or leave out ctx.set_materialize_grads(False)",
    )


def _grad_mode(sight: Sight) -> Explanation | None:
    """Explain autograd.grad inside of a backward, where grad mode is off."""
    if "does not require grad" not in sight.text or sight.method is None or sight.method[1] not in ("backward", "vjp", "forward"):
        return None
    function, method, entry = sight.method
    return Explanation(
        f"{short(function)}.{method} asks autograd for a gradient, but grad mode is off inside of it",
        at(entry),
        (("called at", sight.calling),),
        "with torch.enable_grad(): x = x.detach().requires_grad_(), then the forward, then torch.autograd.grad, all in that block",
    )
