"""What is looked at while an op runs, and what is said when it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from . import structure
from .errors import OpError, listed
from .forward_mode import second_order_message
from .keeping import Kept
from .rules import Definition, Rule, plain_name

Tensor = torch.Tensor


def refuse_gradient(definition: Definition, name: str) -> NoReturn:
    """Raise for an argument that requires grad and has no rule."""
    op, argument = definition.name, definition.argument(name)
    raise OpError(
        f"{op}: the argument {definition.shown(name)!r} requires grad, but {op} ({definition.place}) has no rule for it. "
        f'Write one with @{op}.vjp("{argument}"), or declare @pb.op(static=("{argument}",)) if it is never differentiated.'
    )


def refusal_of_order(definition: Definition) -> Callable[[str], None]:
    """Raises for a second derivative through a kept value without rules of its own."""

    def refuse_order(name: str) -> None:
        raise OpError(second_order_message(definition, plain_name(name)))

    return refuse_order


def unkeeper(definition: Definition) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
    """Takes a body's output and its kept values apart; a kept value that is the output or an argument becomes a view, an output of its own."""
    names, where = definition.kept, f"{definition.name} ({definition.place})"

    def unkeep(value: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not isinstance(value, Kept):
            wanted = ", ".join(f"{name}=..." for name in names)
            raise OpError(f"{where} must return pb.keep(out, {wanted}) on every path; got a bare output.")
        values = value.values
        for name in names:
            if name not in values:
                raise OpError(f"{where} did not keep {name!r} this time; it kept {listed(values)}. Keep the same names on every path.")
            if structure.holds_tensor(values[name]):
                raise OpError(
                    f"{definition.name} ({definition.place}): the kept value {name!r} is a container; keep each tensor by a name of its own."
                )
        taken = [*args, value.out]
        found: list[Any] = []
        for name in names:
            kept = values[name]
            if isinstance(kept, Tensor):
                if any(kept is other for other in taken):
                    kept = kept.view_as(kept)
                taken.append(kept)
            found.append(kept)
        return (value.out, *found)

    return unkeep


def returner(definition: Definition) -> Callable[..., Any]:
    """Checks that an argument changed in place is returned, as autograd needs it, and returns the very argument: dynamo tells them apart."""

    def must_return(name: str, value: Any, y: Any, many: Any) -> tuple[Any, Any]:
        if y is value:
            return value, many
        if many is not None and any(leaf is value for leaf in many[0]):
            return y, (tuple([value if leaf is value else leaf for leaf in many[0]]), *many[1:])
        raise OpError(
            f"{definition.name} ({definition.place}) changes {definition.shown(name)!r} in place, so it must return it; it returned something else."
        )

    return must_return


def several_of(definition: Definition, rules: tuple[Rule, ...]) -> Callable[[Any, int], Any]:
    """Checks that a joint rule returned one gradient for each of its arguments."""

    def several(value: Any, i: int) -> Any:
        rule = rules[i]
        if isinstance(value, (tuple, list)) and len(value) == len(rule.targets):
            return value
        got = f"{len(value)} values" if isinstance(value, (tuple, list)) else f"one {type(value).__name__}"
        where = f"{definition.name}.vjp[{rule.title}] ({rule.place})"
        raise OpError(f"{where} must return {len(rule.targets)} gradients, for {listed(map(plain_name, rule.targets))}; got {got}.")

    return several


def shape_checker(definition: Definition, rules: tuple[Rule, ...]) -> Callable[[Any, Any], Any]:
    """Checks that each gradient has its argument's shape, or a shape that broadcasting made of it."""

    def check_shapes(shapes: tuple[Any, ...], grads: Any) -> Any:
        for i, grad in enumerate(grads if isinstance(grads, tuple) else (grads,)):
            if grad is None:
                continue
            if not isinstance(grad, Tensor):
                where = _rule_place(definition, rules, i)
                raise OpError(
                    f"{where} returned a {type(grad).__name__} for {definition.shown(definition.names[i])!r}; a gradient is a tensor or None."
                )
            if shapes[i] is not None and not _reducible(grad.shape, shapes[i]):
                raise OpError(
                    f"{_rule_place(definition, rules, i)} returned a gradient of shape {list(grad.shape)} "
                    f"for {definition.shown(definition.names[i])!r}, "
                    f"which has shape {list(shapes[i])}."
                )
        return grads

    return check_shapes


def complex_gradient_of(definition: Definition, rules: tuple[Rule, ...]) -> Callable[[int], OpError]:
    """The error about a complex gradient of a real argument."""

    def complex_gradient(i: int) -> OpError:
        return OpError(
            f"{_rule_place(definition, rules, i)} returned a complex gradient for {definition.shown(definition.names[i])!r}, which is real. "
            "Return its real part."
        )

    return complex_gradient


def _rule_place(definition: Definition, rules: tuple[Rule, ...], i: int) -> str:
    name = definition.names[i]
    rule = next(rule for rule in rules if any(plain_name(target) == name for target in rule.targets))
    return f"{definition.name}.vjp[{rule.title}] ({rule.place})"


def _reducible(got: Any, wanted: Any) -> bool:
    if got == wanted:
        return True
    if len(got) < len(wanted):
        return False
    return all(w in (1, g) for g, w in zip(got[len(got) - len(wanted) :], wanted, strict=True))
