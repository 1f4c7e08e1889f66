"""Reads rules, and says what is wrong with them before the op runs."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch

from .errors import OpError, did_you_mean, listed, place_of
from .rules import Definition, Rule


def make_rule(definition: Definition, targets: tuple[str, ...], function: Callable[..., Any], *, of: str | None, **options: Any) -> Rule:
    """Read a rule from its parameter names.

    Raises:
        OpError: for every mistake that can be told before the op runs.
    """
    place = place_of(function)
    where = f"{definition.name}.vjp{list(targets)} ({place})".replace("'", "")
    _check_targets(definition, targets, of, where)
    parameters = rule_parameters(where, "the cotangent", "dy", function)
    if returns_nothing(function):
        raise OpError(
            f"{where}: the rule returns nothing, so {listed(targets)} would get no gradient, and nobody would know. Return it, "
            "or declare the argument static if it is never differentiated."
        )
    cotangent = parameters[0].name
    if cotangent in (*definition.names, *definition.kept, definition.out):
        raise OpError(
            f"{where}: the first parameter of a rule is the cotangent, but {cotangent!r} is also the name of "
            f"{'the output' if cotangent == definition.out else 'an argument' if cotangent in definition.names else 'a kept value'}. "
            f"Write `def _(dy, {', '.join(p.name for p in parameters)})`, or call the cotangent something else."
        )
    residuals = tuple(p.name for p in parameters[1:] if p.name != definition.wanted)
    check_residuals(definition, residuals, where, (definition.wanted,))
    wanted = definition.wanted if any(p.name == definition.wanted for p in parameters[1:]) else None
    keeps = _keeps(where, options.pop("keeps", None))
    for name, value in keeps.items():
        if name not in targets:
            raise OpError(f"{where}: keeps names {name!r}, which is not among the rule's arguments {listed(targets)}.{did_you_mean(name, targets)}")
        for residual in value:
            if residual not in residuals:
                raise OpError(f"{where}: keeps says that {name!r} needs {residual!r}, but the rule does not name it; it names {listed(residuals)}.")
    if options.get("undefined", "zeros") not in ("zeros", "none"):
        raise OpError(f'{where}: undefined must be "zeros" or "none", got {options["undefined"]!r}.')
    rule = Rule(targets, of, function, residuals, place, wanted, keeps=keeps, **options)
    for other in definition.rules:
        for target in targets:
            if target in other.targets and other.of == of:
                raise OpError(f"{where}: {target!r} already has a rule at {other.place}. An argument has one rule for each cotangent.")
    return rule


def _check_targets(definition: Definition, targets: tuple[str, ...], of: str | None, where: str) -> None:
    if len(set(targets)) < len(targets):
        raise OpError(f"{where}: a rule names each argument once, in the order of the gradients that it returns.")
    if not targets:
        raise OpError(f'{where}: name the argument whose gradient the rule returns, for example @{definition.name}.vjp("{definition.names[0]}").')
    known = (*definition.names, *definition.kept)
    for target in targets:
        if not isinstance(target, str) or target not in known:
            raise OpError(
                f"{where}: {definition.name} has no argument or kept value {target!r}; it has the arguments {listed(definition.names)}"
                + (f" and keeps {listed(definition.kept)}." if definition.kept else ".")
                + did_you_mean(str(target), known)
            )
        if target in definition.names and definition.param(target).static:
            raise OpError(f"{where}: {target!r} is static, so it has no gradient. Take it out of static=, or drop the rule.")
    if of is not None and of not in definition.kept:
        raise OpError(
            f"{where}: of={of!r} must be a kept value; {definition.name} keeps {listed(definition.kept)}.{did_you_mean(of, definition.kept)}"
        )
    if of is not None and of in targets:
        raise OpError(f"{where}: {of!r} cannot be computed from its own cotangent.")


def check_residuals(definition: Definition, residuals: tuple[str, ...], where: str, more: tuple[str, ...]) -> None:
    """Raise for a name that stands for nothing when a rule runs; `more` are names beside values."""
    known = (*definition.names, *definition.kept, definition.out, *more)
    for name in residuals:
        if name in definition.mutates:
            raise OpError(
                f"{where}: {name!r} is changed in place by the forward, so its old value is gone. "
                f"Name {definition.out!r} instead, or keep what is needed with pb.keep."
            )
        if name not in known:
            own = "" if definition.kept else " What pb.keep keeps is read from the op's own body, not from functions that it calls."
            raise OpError(
                f"{where}: the rule names {name!r}, which is not there. It may name the arguments {listed(definition.names)}, the kept values "
                f"{listed(definition.kept)} and {listed((definition.out, *more))}." + (did_you_mean(name, known) or own)
            )


def names_in(where: str, option: str, given: Any) -> tuple[str, ...]:
    """`given` as a tuple of argument names.

    Raises:
        OpError: for a string, of which every letter would count as a name, and for what holds no names.
    """
    if isinstance(given, str):
        raise OpError(f'{where}: {option} is a sequence of names: write {option}=("{given}",), got {option}={given!r}.')
    if not isinstance(given, Iterable) or not all(isinstance(name, str) for name in given):
        raise OpError(f"{where}: {option} is a sequence of argument names, got {given!r}.")
    return tuple(given)


def _keeps(where: str, given: Any) -> dict[str, tuple[str, ...]]:
    if given is not None and not isinstance(given, Mapping):
        raise OpError(f'{where}: keeps says for each argument what it needs, keeps={{"x": ("weight",)}}; got {given!r}.')
    return {name: names_in(where, f"keeps[{name!r}]", value) for name, value in (given or {}).items()}


def rule_parameters(where: str, first: str, example: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a rule, which takes `first` and then names what it needs.

    Raises:
        OpError: for what is no Python function, and for parameters that are not plain names.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise OpError(f"{where}: a rule is a Python function, whose parameter names say what it needs; got {function!r}.") from None
    if not parameters:
        raise OpError(f"{where}: a rule takes {first} first, for example `def _({example}):`; this one takes nothing.")
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        raise OpError(f"{where}: a rule names what it needs; *args and **kwargs are refused.")
    starred = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if starred and isinstance(function, FunctionType):
        raise OpError(f"{where}: a rule is called by position, but {listed(starred)} can only be given by keyword. Take the * out.")
    return [p for p in parameters if p.kind is not p.KEYWORD_ONLY]


def check_jvp(definition: Definition, function: Callable[..., Any]) -> None:
    """Raise for a jvp that names something that is not there."""
    where = f"{definition.name}.jvp ({place_of(function)})"
    parameters = rule_parameters(where, "the tangents", "tangents", function)
    check_residuals(definition, tuple(p.name for p in parameters[1:]), where, ())


def check_takes(definition: Definition, what: str, function: Callable[..., Any], first: tuple[str, ...] = ()) -> None:
    """Raise for another forward, a fake or a surrogate that cannot be called with one value for each of the op's arguments."""
    where = f"{definition.name}.{what} ({place_of(function)})"
    try:
        parameters = inspect.signature(function).parameters.values()
    except TypeError:
        raise OpError(f"{where}: {what} decorates a function; got {function!r}.") from None
    except ValueError:  # a function of torch's that does not tell its parameters
        return
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    most, least = len(parameters), sum(p.default is p.empty for p in parameters)
    expected = (*first, *definition.names)
    if not least <= len(expected) <= most:
        raise OpError(f"{where} must take what the op takes, {listed(expected)}; it takes {listed(p.name for p in parameters)}.")


def device_type(where: str, device: Any) -> str:
    """`device` if it is a device type.

    Raises:
        OpError: for a function (the parentheses were left out), an index, and what torch knows no device of.
    """
    example = f'{where}("cuda")'
    if not isinstance(device, str):
        raise OpError(f"{where} takes a device type: write @{example}; got {device!r}.")
    try:
        known = torch.device(device)
    except RuntimeError:
        raise OpError(f"{where}({device!r}): torch has no device type {device!r}. Write for example @{example}.") from None
    if known.type != device:
        raise OpError(f'{where}({device!r}): a version is for a device type, not for one device of it. Write @{where}("{known.type}").')
    return device


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether every way through `function` that returns at all returns None."""
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and not code.co_flags & inspect.CO_GENERATOR and _returned(code) == {None}


def _returned(code: CodeType) -> set[Any]:
    """The constants that `code` returns; something else stands for a value that is computed."""
    found: set[Any] = set()
    nothing = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            found.add(None if instruction.argval is None else "value")
        elif instruction.opname == "RETURN_VALUE":
            # Where jumps lead here, the constant before it is one of several values that end here.
            found.add(None if nothing and not instruction.is_jump_target else "value")
        nothing = instruction.opname == "LOAD_CONST" and instruction.argval is None
    return found
