"""Ops called with containers of tensors, as ops with one argument for each leaf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from .errors import OpError
from .rules import Definition, Leaf, Param, Rule
from .structure import LEAF, build, count, describe, flatten, paths

Tensor = torch.Tensor


def flat_definition(definition: Definition, key: tuple[Any, ...]) -> Definition:
    """The op with the leaves of its arguments as arguments.

    Args:
        definition: The op.
        key: For each argument: whether it is a tensor, if it is no container; the number of tensors of a plain ``*args``; or a spec, and which
            of its leaves are tensors.
    """
    parts = [_part(entry) for entry in key]
    specs = {param.name: spec for param, (spec, _) in zip(definition.params, parts, strict=True)}
    groups = {param.name: _leaf_names(param, specs[param.name]) for param in definition.params}
    params = tuple(
        Param(name, param.static, "tensor" if is_tensor else "any")
        for param, (_, flags) in zip(definition.params, parts, strict=True)
        for name, is_tensor in zip(groups[param.name], flags, strict=True)
    )
    shape = Shape(groups, specs)
    spread = {
        leaf: Leaf(name, path) for name, leaves in groups.items() for leaf, path in zip(leaves, paths(name, specs[name]), strict=True) if leaf != name
    }
    return replace(
        definition,
        params=params,
        flat=True,
        spread=spread,
        body=shape.regroup(definition.body, definition.names),
        rules=[made for made in [_flat_rule(definition, rule, shape) for rule in definition.rules] if made.targets],
        surrogate=definition.surrogate and shape.regroup(definition.surrogate, definition.names),
        kernels={device: shape.regroup(kernel, definition.names) for device, kernel in definition.kernels.items()},
        fake=definition.fake and shape.regroup(definition.fake, definition.names),
        inference=definition.inference and shape.regroup(definition.inference, definition.names),
        mutates=tuple(name for target in definition.mutates for name in groups[target]),
        linear=tuple(name for target in definition.linear for name in groups[target]),
        jvp=_refuse(definition, "jvp"),
        vmap=_refuse(definition, "vmap"),
    )


def _part(entry: Any) -> tuple[Any, tuple[bool, ...]]:
    if isinstance(entry, bool):
        return LEAF, (entry,)
    if isinstance(entry, int):
        return ("tuple", (LEAF,) * entry), (True,) * entry
    return entry


def _refuse(definition: Definition, what: str) -> None:
    if getattr(definition, what) is not None:
        raise OpError(f"{definition.name} ({definition.place}): @{definition.name}.{what} cannot be used with containers of tensors.")


def _leaf_names(param: Param, spec: Any) -> tuple[str, ...]:
    if spec == LEAF and not param.variadic:
        return (param.name,)
    return tuple(f"{param.name}_{i}" for i in range(count(spec)))


class Shape:
    """How an op's arguments are spread over leaves."""

    def __init__(self, groups: dict[str, tuple[str, ...]], specs: dict[str, Any]) -> None:
        self.groups = groups
        self.specs = specs

    def plan(self, names: tuple[str, ...]) -> tuple[tuple[Any, int], ...]:
        """Spec and number of leaves of each of `names`."""
        found = []
        for name in names:
            spec, size = self.specs.get(name, LEAF), len(self.groups.get(name, (name,)))
            found.append((None if spec == ("tuple", (LEAF,) * size) else spec, size))
        return tuple(found)

    def regroup(self, function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
        """`function` of `names`, as a function of their leaves."""
        plan = self.plan(names)

        def regrouped(*leaves: Any) -> Any:
            return function(*regroup(plan, leaves))

        return regrouped


def regroup(plan: tuple[tuple[Any, int], ...], leaves: tuple[Any, ...]) -> list[Any]:
    """Containers from leaves; a spec of None is a plain tuple."""
    at, values = 0, []
    for spec, size in plan:
        part = leaves[at : at + size]
        values.append(part if spec is None else build(spec, part))
        at += size
    return values


def _flat_rule(definition: Definition, rule: Rule, shape: Shape) -> Rule:
    groups, specs = shape.groups, shape.specs
    targets = tuple(name for target in rule.targets for name in groups.get(target, (target,)))
    residuals = tuple(name for residual in rule.residuals for name in groups.get(residual, (residual,)))
    plan = shape.plan(rule.residuals)
    spread = tuple([(target, specs.get(target, LEAF), len(groups.get(target, (target,)))) for target in rule.targets])
    function, wanted, where = rule.function, rule.wanted, f"{definition.name}.vjp[{rule.title}] ({rule.place})"
    several = len(rule.targets) > 1
    single = len(targets) == 1

    def flat(dy: Any, *leaves: Any, **flags: Any) -> Any:
        values = regroup(plan, leaves)
        if wanted is not None:
            values_given, i = [], 0
            for _, _, size in spread:
                values_given.append(any(next(iter(flags.values()))[i : i + size]))
                i += size
            result = function(dy, *values, **{wanted: tuple(values_given)})
        else:
            result = function(dy, *values)
        parts = result if several else (result,)
        found: list[Any] = []
        for (target, spec, size), part in zip(spread, parts, strict=True):
            found += matching(where, target, spec, size, part)
        return found[0] if single else tuple(found)

    keeps = {
        name: tuple(leaf for residual in rule.needed_by(target) for leaf in groups.get(residual, (residual,)))
        for target in rule.targets
        for name in groups.get(target, (target,))
    }
    kernels = {device: _flat_rule(definition, replace(rule, function=kernel, kernels={}), shape).function for device, kernel in rule.kernels.items()}
    return replace(rule, targets=targets, residuals=residuals, function=flat, keeps=keeps, kernels=kernels, once=rule.once)


def matching(where: str, target: str, spec: Any, size: int, part: Any) -> list[Any]:
    """The leaves of a gradient, which has its argument's structure."""
    if spec == LEAF:
        return [part]
    if part is None:
        return [None] * size
    if type(part) is tuple and len(part) == size and spec == ("tuple", (LEAF,) * size) and not [leaf for leaf in part if type(leaf) is not Tensor]:
        return list(part)
    leaves: list[Any] = []
    found = flatten(part, leaves)
    if _outline(found) != _outline(spec):
        raise OpError(f"{where} must return the gradient of {target!r} in its structure, {describe(spec)}; got {describe(found)}.")
    return leaves


def _outline(spec: Any) -> Any:
    """The structure without the distinction of lists and tuples."""
    if spec == LEAF:
        return LEAF
    kind = "sequence" if spec[0] in ("list", "tuple") else spec[0]
    return (kind, spec[1:-1] if kind != "sequence" else (), tuple([_outline(child) for child in spec[-1]]))
