"""`pb.op`: a differentiable op, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

import torch

from .declared import Declared, RuleDecorator
from .errors import OpError, place_of
from .keeping import Sample, keep, sample
from .making import names_in
from .rules import Definition, Param, kept_names, params_of, positional

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Op", "OpError", "RuleDecorator", "Sample", "keep", "op", "sample"]


if TYPE_CHECKING:

    class Op(Generic[P, R]):
        """A differentiable op: a function with the author's own signature, and rules attached to it."""

        __name__: str
        __qualname__: str
        __pullback__: Mapping[str, Any]

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        @overload
        def __get__(self, instance: None, owner: Any) -> Op[P, R]: ...
        @overload
        def __get__(self, instance: object, owner: Any = None) -> Callable[..., R]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...
        def kernel(self, device: str) -> Callable[[F], F]: ...
        def vjp(
            self,
            *targets: str,
            of: str | None = None,
            exact: bool = True,
            linear: bool = True,
            once: bool = False,
            undefined: Literal["zeros", "none"] = "zeros",
            keeps: Mapping[str, Sequence[str]] | None = None,
            reason: str = "",
        ) -> RuleDecorator: ...
        def jvp(self, function: F) -> F: ...
        def vmap(self, function: F) -> F: ...
        def surrogate(self, function: F) -> F: ...
        def fake(self, function: F) -> F: ...
        def inference(self, function: F) -> F: ...
        def sharding(self, function: F) -> F: ...
        def samples(self, function: Callable[[], Iterator[Sample]]) -> Callable[[], Iterator[Sample]]: ...
        def explain(self) -> None: ...
        @property
        def function(self) -> type[torch.autograd.Function] | None: ...

else:

    class Op(Generic[P, R]):
        """The type of an op for annotations; an op itself is a plain function with attributes."""


@overload
def op(function: Callable[P, R], /) -> Op[P, R]: ...
@overload
def op(
    *,
    static: Sequence[str] = (),
    mutates: Sequence[str] = (),
    elementwise: bool = False,
    linear: Sequence[str] = (),
    opaque: bool = False,
    autocast: torch.dtype | Literal["inputs"] | None = None,
    remember: Literal["arguments", "all"] = "arguments",
    reference: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static: Sequence[str] = (),
    mutates: Sequence[str] = (),
    elementwise: bool = False,
    linear: Sequence[str] = (),
    opaque: bool = False,
    autocast: torch.dtype | Literal["inputs"] | None = None,
    remember: Literal["arguments", "all"] = "arguments",
    reference: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a differentiable op: a plain function with `function`'s own signature whose gradients come from rules.

    Rules are added with ``@op.vjp("x")`` until the first call. A rule's first parameter is the cotangent; the others say by name what is kept for
    backward: the op's arguments, values of ``pb.keep``, and ``out``. Without a rule the body is differentiated by autograd, from its arguments alone.

    Args:
        function: The forward, as torch code (or anything at all, with `opaque`).
        static: Arguments that are never differentiated.
        mutates: Arguments that the body changes in place; it must return them.
        elementwise: The body's ``out[i]`` depends on the broadcast arguments' ``[i]`` only. Forward mode and batching follow from it.
        linear: Arguments in which the body is linear, jointly. Forward mode follows from it.
        opaque: The body is a kernel that compilers and vmap must not look into. Compilers need ``@op.fake``.
        autocast: None to run as torch's own ops do; a dtype, or ``"inputs"`` for the widest among them, to cast floating arguments first.
        remember: For an op without rules: ``"arguments"`` recomputes the body in backward, ``"all"`` keeps what autograd keeps, as one does
            that `mutates`.
        reference: A function of the same arguments that computes the same in plain torch, for checkers. Without one the body is its own reference.
        name: Another name for messages and graphs.

    Raises:
        OpError: for a signature with ``**kwargs``, or an option that names no argument.

    Example:
        >>> import torch, pullback as pb
        >>> @pb.op
        ... def muladd(w, x, b):
        ...     return w * x + b
        >>> @muladd.vjp("w")
        ... def _(dy, x):
        ...     return dy * x
        >>> @muladd.vjp("x")
        ... def _(dy, w):
        ...     return dy * w
        >>> @muladd.vjp("b")
        ... def _(dy):
        ...     return dy
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> muladd(torch.tensor(2.0), x, torch.tensor(1.0)).backward()
        >>> x.grad
        tensor(2.)
    """

    def make(function: Callable[..., Any]) -> Any:
        return _make(function, static, mutates, elementwise, linear, opaque, autocast, remember, reference, name)

    return make if function is None else make(function)


def _make(
    function: Callable[..., Any],
    static: Sequence[str],
    mutates: Sequence[str],
    elementwise: bool,
    linear: Sequence[str],
    opaque: bool,
    autocast: Any,
    remember: str,
    reference: Callable[..., Any] | None,
    name: str | None,
) -> Any:
    if not isinstance(function, FunctionType):
        raise OpError(f"pb.op decorates a plain function, got {type(function).__name__}.")
    where = f"{function.__name__} ({place_of(function)})"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise OpError(f"{where}: pb.op decorates a plain function that returns its output; this one is written with async or yield.")
    static, mutates, linear = (names_in(where, option, given) for option, given in (("static", static), ("mutates", mutates), ("linear", linear)))
    params = params_of(function, static)
    _require_names(where, params, static, mutates, linear)
    _require_options(where, elementwise, opaque, autocast, remember, reference, name)
    definition = Definition(
        name=name or function.__name__.replace("<lambda>", "lambda_op"),
        module=function.__module__,
        body=positional(function),
        params=params,
        kept=kept_names(function),
        place=place_of(function),
        mutates=mutates,
        elementwise=elementwise,
        linear=linear,
        opaque=opaque,
        autocast=autocast,
        remember=remember,
        reference=reference,
    )
    clash = [kept for kept in definition.kept if kept in definition.names]
    if clash:
        raise OpError(f"{where}: the kept value {clash[0]!r} has the name of an argument. Rules find both by name, so give it another one.")
    return Declared(definition, function).function


def _require_names(where: str, params: Sequence[Param], static: Sequence[str], mutates: Sequence[str], linear: Sequence[str]) -> None:
    for option, given in (("mutates", mutates), ("linear", linear)):
        for argument in given:
            if argument not in {param.name for param in params}:
                raise OpError(f"{where}: {option} names {argument!r}, which is no argument.")
    for argument in linear:
        if argument in static:
            raise OpError(f"{where}: linear names {argument!r}, which is static, so that it has no derivative. Take it out of one of them.")


def _require_options(where: str, elementwise: Any, opaque: Any, autocast: Any, remember: Any, reference: Any, name: Any) -> None:
    for option, flag in (("elementwise", elementwise), ("opaque", opaque)):
        if not isinstance(flag, bool):
            raise OpError(f"{where}: {option} must be True or False, got {flag!r}.")
    if remember not in ("arguments", "all"):
        raise OpError(f'{where}: remember must be "arguments" or "all", got {remember!r}.')
    if autocast is not None and autocast != "inputs" and not isinstance(autocast, torch.dtype):
        raise OpError(f'{where}: autocast must be None, a dtype or "inputs", got {autocast!r}.')
    if reference is not None and not callable(reference):
        raise OpError(f"{where}: reference must be a function of the same arguments, got {reference!r}.")
    if name is not None and not (isinstance(name, str) and name):
        raise OpError(f"{where}: name must be a string that is not empty, got {name!r}.")
