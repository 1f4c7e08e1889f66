"""What torch's own checkers say about a Function: gradcheck (slow, fast), gradgradcheck and opcheck, each with its defaults."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "pullback_tables"
CHECKERS = ("gradcheck slow", "gradcheck fast", "gradgradcheck", "opcheck")
PASSES, FAILS, UNFIT = "passes", "fails", "does not apply"

_numbers = itertools.count()


def verdicts(call: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, str]:
    """Return for each checker whether it passes or fails a callable at these arguments, which are cast to float64 first."""
    arguments = tuple(double(a) for a in arguments)
    steps: dict[str, Callable[[Callable[..., Any]], bool]] = {
        "gradcheck slow": lambda call: torch.autograd.gradcheck(call, fresh(arguments)),
        "gradcheck fast": lambda call: torch.autograd.gradcheck(call, fresh(arguments), fast_mode=True),
        "gradgradcheck": lambda call: torch.autograd.gradgradcheck(call, fresh(arguments)),
    }
    found = {name: _outcome(step, call) for name, step in steps.items()}
    found["opcheck"] = opcheck(call, arguments)
    return found


def double(value: Any) -> Any:
    """Return floating tensors in float64, complex ones in complex128, all other values as they are; lists and tuples are walked."""
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value if value.dtype is wide else value.detach().to(wide).requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(double(v) for v in value)
    return value


def fresh(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments whose tensors are copies."""
    return tuple(
        a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in arguments
    )


def _outcome(step: Callable[[Callable[..., Any]], bool], call: Callable[..., Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return PASSES if step(call) else FAILS
        except Exception as error:
            writes = "leaf Variable" in str(error) and "in-place" in str(error)
        try:
            return PASSES if writes and step(lambda *args: call(*[a.clone() if isinstance(a, Tensor) else a for a in args])) else FAILS
        except Exception:
            return FAILS


def opcheck(call: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return what `torch.library.opcheck` says when forward and backward are registered as a torch.library op, which is what it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            op = library_op(call, arguments)
        except Exception:
            return UNFIT
        try:
            torch.library.opcheck(op, fresh(arguments))
        except Exception:
            return FAILS
        return PASSES


def library_op(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return a torch.library op with the forward and the backward of `call`.

    Raises:
        TypeError: for arguments or results that no schema describes, and for results that are an argument.
    """
    given = fresh(arguments)
    with torch.no_grad():
        results = call(*given)
    outputs = results if isinstance(results, tuple) else (results,)
    if not all(isinstance(y, Tensor) for y in outputs) or not all(
        torch.equal(a, b) for a, b in zip(_tensors(given), _tensors(arguments), strict=True)
    ):
        raise TypeError("no schema fits")
    name = f"op{next(_numbers)}"
    types = ", ".join(f"{_type(a)} a{i}" for i, a in enumerate(arguments))
    single = not isinstance(results, tuple)
    torch.library.define(f"{NAMESPACE}::{name}", f"({types}) -> {'Tensor' if single else '(' + ', '.join('Tensor' for _ in outputs) + ')'}")

    def forward(*args: Any) -> Any:
        with torch.no_grad():
            made = call(*args)
        return made.clone() if single else tuple(y.clone() for y in made)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*_tensors(inputs))
        ctx.rest = [None if isinstance(a, Tensor) else a for a in inputs]
        ctx.places = [isinstance(a, Tensor) for a in inputs]
        ctx.needs = [isinstance(a, Tensor) and a.requires_grad for a in arguments]

    def backward(ctx: Any, *cotangents: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved).detach() if place else rest for place, rest in zip(ctx.places, ctx.rest, strict=True)]
        inputs = [a.requires_grad_() if need else a for a, need in zip(inputs, ctx.needs, strict=True)]
        with torch.enable_grad():
            made = call(*inputs)
        pairs = [(y, c) for y, c in zip((made,) if single else made, cotangents, strict=True) if y.requires_grad and c is not None]
        wanted = [a for a, need in zip(inputs, ctx.needs, strict=True) if need]
        gradients = iter(torch.autograd.grad([y for y, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True))
        return tuple(next(gradients) if need else None for need in ctx.needs)

    torch.library.impl(f"{NAMESPACE}::{name}", "cpu", forward)
    torch.library.register_fake(f"{NAMESPACE}::{name}", forward)
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor)]


def _type(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "str", type(None): "Tensor?"}
    if isinstance(value, Tensor):
        return "Tensor"
    if type(value) not in names:
        raise TypeError(f"no schema type for {type(value).__name__}")
    return names[type(value)]
