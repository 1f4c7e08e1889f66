"""`check`: run the battery on one call, in the caller's process, and leave no trace there."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

from torch import Tensor

from ..capture.calls import Target, resolve_target
from ..capture.case import Case
from ..declare import Declaration, declaration_of, read_configuration
from ..report import codes
from ..report.report import Report
from .process_state import muted_output, preserved_state
from .searched import searched_cases
from .session import run_case as run_case
from .settings import Settings as Settings


def check(
    target: Any,
    inputs: Tensor | tuple[Any, ...] | list[Any] | None = None,
    /,
    *more: Never,
    kwargs: Mapping[str, Any] | None = None,
    reference: Callable[..., Any] | None = None,
    surrogate: Callable[..., Any] | None = None,
    exact: bool = True,
    linear: bool = True,
    static: Sequence[str] = (),
    orders: int = 1,
    thorough: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    seed: int = 0,
    **unknown: Never,
) -> Report:
    """Return a report on whether the backward of `target` is right, under everything PyTorch will do to it.

    Nothing of the caller changes: the given tensors, random states, grad mode and default dtype are bit-identical afterwards.

    Args:
        target: An `autograd.Function` subclass, its `apply`, a `pb.op`, a torch.library op, or any callable or module that uses custom Functions
            inside. Or a `pb.case`, which has its arguments with it.
        inputs: A tuple is the arguments, one tensor is one argument, a list is one argument; None: sample inputs are searched for. If at least
            one given tensor requires grad, exactly those are differentiated; if none does, all floating and complex tensors not in `static`.
        *more: Refused, with how to write it: the arguments go into one tuple.
        kwargs: Keyword arguments of the call.
        reference: A callable of the same arguments that computes the same with plain torch; forward and gradients are compared with it.
        surrogate: A callable of the same arguments whose gradient backward is meant to return.
        exact: False where the gradient is deliberately not the forward's derivative.
        linear: False where backward is deliberately not linear in grad_output.
        static: Names of arguments that are never differentiated.
        orders: 2 where second derivatives must be right.
        thorough: Whether to run the slow tier too, and everything at the given sizes: otherwise tensors of 65,536 elements or more are made smaller
            where the op takes it, and the report says so.
        select: Codes, names or families to run; empty: all.
        ignore: Codes, names or families to leave out.
        seed: Chooses directions, cotangents and samples.
        **unknown: Refused, with how to write it: keyword arguments of the call go into `kwargs`.

    Returns:
        A `Report`; `print` it, ask its `ok`, or call `raise_if_failed()`.

    Raises:
        TypeError: if `target` is not something that can be checked, its arguments are not passed in `inputs` and `kwargs`, or it is a case and there
            are arguments beside it.
        pullback.report.codes.UnknownCode: for an unknown word in `select` or `ignore`.

    Example:
        >>> import torch, pullback as pb
        >>> class Square(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, dy):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * dy
        >>> pb.check(Square, torch.randn(3, dtype=torch.float64, requires_grad=True)).ok
        True
    """
    case = target if isinstance(target, Case) else None
    if case is not None:
        if inputs is not None or kwargs or more:
            raise TypeError("pb.check takes the arguments that the case was made with: leave the others out, or put them into pb.case(target, ...)")
        target = case.target
    resolved = resolve_target(target)
    if more or unknown:
        arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
        raise TypeError(_misuse(resolved, (*arguments, *more), tuple(kwargs or ()), tuple(unknown)))
    settings = Settings(seed=seed, orders=orders, thorough=thorough, select=codes.resolve(select), ignore=codes.resolve(ignore))
    stated = {"reference": reference, "surrogate": surrogate, "static": tuple(static)}
    flags = {"exact": exact, "linear": linear}
    given = {k: v for k, v in stated.items() if v} | {k: v for k, v in flags.items() if v is False}
    configured = read_configuration(Path.cwd())[1].get("declare", {})
    declared = declaration_of(resolved.function or target, configured=configured, subject=resolved.subject)
    own = case.declaration.stated if case is not None else {}
    declaration = declared.update("pb.case", **own).update("pb.check", **given)
    with muted_output():
        if case is not None:
            return run_case(replace(case, declaration=declaration), settings)
        if inputs is None and not kwargs:
            return _check_searched(target, declaration, settings)
        args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
        return run_case(Case(target, args, dict(kwargs or {}), declaration, origin="given"), settings)


def _misuse(target: Target, given: tuple[Any, ...], named: tuple[str, ...], unknown: tuple[str, ...]) -> str:
    """Say how a call is written in which the op's arguments stand among those of `check`.

    Args:
        target: What is checked.
        given: The arguments by position.
        named: Keyword arguments in `kwargs`.
        unknown: Keyword arguments that `check` does not have.
    """
    options = [p.name for p in inspect.signature(check).parameters.values() if p.kind is p.KEYWORD_ONLY]
    foreign = [name for name in unknown if name not in target.names and not any(n.startswith("**") for n in target.names)]
    if foreign:
        near = difflib.get_close_matches(foreign[0], options, n=1)
        meant = f"did you mean {near[0]}=?" if near else f"the options are {', '.join(options)}"
        return f"pullback.check has no option {foreign[0]!r}, and {target.name} no argument of that name: {meant}"
    keywords = (*named, *unknown)
    count = len(given)
    if target.direct:  # apply takes no keyword arguments
        count, keywords = max([count, *(target.names.index(k) + 1 for k in keywords if k in target.names)]), ()
    names = [n if n.isidentifier() else f"arg{i + 1}" for i, n in enumerate(target.positional(count))]
    inside = f"({', '.join(names)}{',' if count == 1 else ''})"
    rest = ", ".join(f"{name!r}: {name}" for name in keywords)
    call = f"pb.check({target.name}, {inside}{f', kwargs={{{rest}}}' if rest else ''})"
    got = f"{', '.join(unknown)}= as an option of check" if unknown else f"{len(given)} arguments one by one"
    return f"pullback.check takes the arguments of {target.name} in one tuple, and keyword arguments in kwargs: {call}; got {got}"


def _check_searched(target: Any, declaration: Declaration, settings: Settings) -> Report:
    with preserved_state():
        cases, nothing = searched_cases(target, declaration, settings.seed)
    report = nothing or Report()
    return report.merge(*(run_case(case, settings) for case in cases))
