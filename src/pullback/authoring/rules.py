"""What an op is: its arguments, its rules, and what can be wrong with them at declaration."""

from __future__ import annotations

import ast
import contextlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal

import torch

from ..capture.source import syntax_of
from .errors import OpError, Place, did_you_mean, listed, place_of
from .keeping import keep

Certainty = Literal["tensor", "optional", "any"]
RENAMED = "arg_"


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of an op.

    Args:
        name: Its name.
        static: Whether it is never differentiated and handed through as it is.
        certain: What it surely is: ``"tensor"``, ``"optional"`` (a tensor or None), or ``"any"`` (anything).
        variadic: Whether it collects positional arguments (``*args``).
    """

    name: str
    static: bool = False
    certain: Certainty = "tensor"
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor inside a container: the argument that is the container, and how the tensor is written in Python."""

    argument: str
    shown: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A vjp rule: from a cotangent to the gradients of some arguments or kept values.

    Args:
        targets: Arguments or kept values whose gradient it returns.
        of: The kept value whose cotangent it takes; None for the output's.
        function: The user's function.
        residuals: What it names beyond the cotangent, in order of its parameters.
        wanted: The name under which it takes the wanted flags, or None.
        keeps: For a joint rule, what only some targets need: for each, its part of the residuals that are divided so.
        kernels: Versions for a device type.
    """

    targets: tuple[str, ...]
    of: str | None
    function: Callable[..., Any]
    residuals: tuple[str, ...]
    place: Place
    wanted: str | None = None
    exact: bool = True
    linear: bool = True
    once: bool = False
    undefined: Literal["zeros", "none"] = "zeros"
    reason: str = ""
    keeps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def needed_by(self, target: str) -> tuple[str, ...]:
        """The residuals that are read for the gradient of `target`: what `keeps` says it needs, and what is said of no target."""
        if target not in self.keeps:
            return self.residuals
        divided = {residual for needed in self.keeps.values() for residual in needed}
        return tuple(residual for residual in self.residuals if residual in self.keeps[target] or residual not in divided)

    @property
    def title(self) -> str:
        """How tracebacks and profiles name it: ``w`` or ``x, weight of z``."""
        names = ", ".join(map(plain_name, self.targets))
        return f"{names} of {plain_name(self.of)}" if self.of else names


@dataclass(slots=True)
class Definition:
    """An op as far as it has been declared."""

    name: str
    module: str
    body: Callable[..., Any]
    params: tuple[Param, ...]
    kept: tuple[str, ...]
    place: Place
    mutates: tuple[str, ...] = ()
    elementwise: bool = False
    linear: tuple[str, ...] = ()
    opaque: bool = False
    autocast: torch.dtype | str | None = None
    remember: str = "arguments"
    rules: list[Rule] = field(default_factory=list)
    surrogate: Callable[..., Any] | None = None
    surrogate_reason: str = ""
    jvp: Callable[..., Any] | None = None
    vmap: Callable[..., Any] | None = None
    fake: Callable[..., Any] | None = None
    inference: Callable[..., Any] | None = None
    sharding: Callable[..., Any] | None = None
    samples: Callable[..., Any] | None = None
    reference: Callable[..., Any] | None = None
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
    made: Literal["surrogate", "recompute"] | None = None
    flat: bool = False
    spread: Mapping[str, Leaf] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(param.name for param in self.params)

    @property
    def differentiable(self) -> tuple[Param, ...]:
        return tuple(param for param in self.params if not param.static)

    @property
    def out(self) -> str:
        """The name under which a rule asks for the output."""
        return "out_" if "out" in self.names or "out" in self.kept else "out"

    @property
    def wanted(self) -> str:
        """The name under which a rule asks for the wanted flags."""
        return "wanted_" if "wanted" in self.names or "wanted" in self.kept else "wanted"

    @property
    def automatic(self) -> Literal["surrogate", "recompute"] | None:
        """How gradients come about where there are no rules."""
        if self.made is not None:
            return self.made
        if self.rules:
            return None
        if self.surrogate is not None:
            return "surrogate"
        return None if self.opaque else "recompute"

    @property
    def remembers_all(self) -> bool:
        """Whether a body without rules keeps what autograd keeps: on demand, and where the arguments are gone after the call."""
        return self.remember == "all" or bool(self.mutates)

    @property
    def deliberate(self) -> bool:
        """Whether the gradient is declared to be something else than the body's derivative."""
        return self.surrogate is not None or any(not (rule.exact and rule.linear) for rule in self.rules)

    def param(self, name: str) -> Param:
        return next(param for param in self.params if param.name == name)

    def shown(self, name: str) -> str:
        """An argument as its author writes it, also where generated code calls it differently: ``params['k']``."""
        return self.spread[name].shown if name in self.spread else plain_name(name)

    def argument(self, name: str) -> str:
        """The argument of the author's signature that `name` is, or is a leaf of."""
        return self.spread[name].argument if name in self.spread else plain_name(name)


def plain_name(name: str) -> str:
    """The author's name of an argument that generated code calls differently."""
    return name.removeprefix(RENAMED)


def params_of(function: FunctionType, static: Sequence[str]) -> tuple[Param, ...]:
    """The arguments of `function`.

    Raises:
        OpError: if it takes ``**kwargs``, or `static` names something that is no argument.
    """
    signature = inspect.signature(function)
    where = f"{function.__name__} ({place_of(function)})"
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise OpError(f"{where}: **{parameter.name} in an op's signature is refused, because rules find arguments by name. Name each one.")
    unknown = [name for name in static if name not in signature.parameters]
    if unknown:
        raise OpError(
            f"{where}: static names {listed(unknown)}, but the arguments are {listed(signature.parameters)}."
            + did_you_mean(unknown[0], signature.parameters)
        )
    hints = _hints(function)
    found = list(signature.parameters.values())
    in_class = "." in function.__qualname__.rpartition("<locals>.")[2]
    return tuple(
        Param(p.name, p.name in static or (i == 0 and p.name == "self" and in_class), _certainty(p, hints.get(p.name)), p.kind is p.VAR_POSITIONAL)
        for i, p in enumerate(found)
    )


def positional(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, called with one value for each of its parameters in order, whatever their kinds."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a function of torch's that does not tell its parameters
        return function
    if not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters):
        return function
    plain = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def in_order(*values: Any) -> Any:
        rest = values[plain] if starred else ()
        return function(*values[:plain], *rest, **dict(zip(keywords, values[plain + starred :], strict=True)))

    return in_order


def _hints(function: FunctionType) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # a hint may name anything, also what is imported for type checkers only
        return {}


def _certainty(parameter: inspect.Parameter, hint: Any) -> Certainty:
    given = [hint, *typing.get_args(hint)]  # the arguments of a Callable have no hash
    if any(kind in given for kind in (int, float, complex, bool, str)):
        return "any"
    if parameter.default is None or type(None) in given:
        return "optional"
    if parameter.default is not inspect.Parameter.empty and not isinstance(parameter.default, torch.Tensor):
        return "any"
    return "tensor"


def kept_names(function: FunctionType) -> tuple[str, ...]:
    """The names that `function` gives to ``pb.keep``, read from its source so that rules can be checked at declaration.

    Raises:
        OpError: for ``pb.keep(..., **values)``, whose names cannot be read.
    """
    tree = syntax_of(function)
    if tree is None:
        return _possible_names(function)
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _is_keep(node.func, function):
            continue
        for keyword in node.keywords:
            if keyword.arg is None:
                raise OpError(f"{function.__name__} ({place_of(function)}): write the names of kept values out, pb.keep(out, z=z); ** hides them.")
            names[keyword.arg] = None
    return tuple(names)


def _is_keep(node: ast.expr, function: FunctionType) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "keep"
    return isinstance(node, ast.Name) and (node.id == "keep" or _value_of(node.id, function) is keep)


def _value_of(name: str, function: FunctionType) -> Any:
    """What `name` stands for in the body of `function`, as far as it is known before a call."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        with contextlib.suppress(ValueError):  # a cell that is still empty
            return cell.cell_contents
    return function.__globals__.get(name)


def _possible_names(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    if "keep" not in (*code.co_names, *code.co_freevars):
        return ()
    keywords = [constant for constant in code.co_consts if isinstance(constant, tuple) and all(isinstance(item, str) for item in constant)]
    return tuple(dict.fromkeys(name for names in keywords for name in names))


def order_of(definition: Definition) -> tuple[Rule, ...]:
    """The rules in the order in which cotangents become known.

    Raises:
        OpError: if kept values depend on each other in a circle.
    """
    done: set[str | None] = {None}
    waiting = list(definition.rules)
    ordered: list[Rule] = []
    feeding = {name: [rule for rule in definition.rules if name in rule.targets] for name in definition.kept}
    while waiting:
        ready = [rule for rule in waiting if rule.of is None or all(feeder in ordered for feeder in feeding[rule.of])]
        if not ready:
            raise OpError(
                f"{definition.name} ({definition.place}): the rules {listed(rule.title for rule in waiting)} form a circle, "
                "so no cotangent can be computed first."
            )
        ordered += ready
        waiting = [rule for rule in waiting if rule not in ready]
        done.update(rule.of for rule in ready)
    return tuple(ordered)
