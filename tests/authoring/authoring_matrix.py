"""Every transform over an op and over its reference: equal, a clear error, or wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from authoring_zoo import Entry
from torch.autograd import forward_ad

Tensor = torch.Tensor


def outputs(value: Any) -> tuple[Tensor, ...]:
    """The differentiable outputs, flat and real."""
    if isinstance(value, Tensor):
        return (torch.view_as_real(value) if value.is_complex() else value,) if value.is_floating_point() or value.is_complex() else ()
    items = value.values() if isinstance(value, dict) else value
    return tuple([leaf for item in items for leaf in outputs(item)])


def loss(value: Any) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for i, out in enumerate(outputs(value)):
        total = total + ((i + 1) * out).sin().sum()
    return total


def of(function: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    return lambda *xs: entry.call(function, *xs)


def _numbers(n: int) -> tuple[int, ...]:
    return tuple(range(n))


def backward(f: Any, xs: Any) -> Any:
    xs = tuple([x.clone().requires_grad_() for x in xs])
    return torch.autograd.grad(loss(f(*xs)), xs, allow_unused=True)


def func_grad(f: Any, xs: Any) -> Any:
    return torch.func.grad(lambda *v: loss(f(*v)), _numbers(len(xs)))(*xs)


def func_jvp(f: Any, xs: Any) -> Any:
    return torch.func.jvp(lambda *v: outputs(f(*v)), xs, tuple([x.cos() for x in xs]))


def vmap(f: Any, xs: Any) -> Any:
    return torch.vmap(lambda *v: outputs(f(*v)), randomness="different")(*[torch.stack([x, x + 0.25, x * 0.5]) for x in xs])


def vmap_grad(f: Any, xs: Any) -> Any:
    batch = [torch.stack([x, x + 0.25, x * 0.5]) for x in xs]
    return torch.vmap(torch.func.grad(lambda *v: loss(f(*v)), _numbers(len(xs))), randomness="different")(*batch)


def jacrev(f: Any, xs: Any) -> Any:
    return torch.func.jacrev(lambda *v: outputs(f(*v)), _numbers(len(xs)))(*xs)


def jacfwd(f: Any, xs: Any) -> Any:
    return torch.func.jacfwd(lambda *v: outputs(f(*v)), _numbers(len(xs)), randomness="same")(*xs)


def hessian(f: Any, xs: Any) -> Any:
    if any(x.is_complex() for x in xs):
        return torch.func.grad(
            lambda *v: sum(g.abs().pow(2).sum() for g in torch.func.grad(lambda *u: loss(f(*u)), _numbers(len(xs)))(*v)), _numbers(len(xs))
        )(*xs)
    return torch.func.jacfwd(torch.func.jacrev(lambda *v: loss(f(*v)), _numbers(len(xs))), _numbers(len(xs)), randomness="same")(*xs)


def dual(f: Any, xs: Any) -> Any:
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, x.cos()) for x in xs]
        found = [forward_ad.unpack_dual(out) for out in outputs(f(*duals))]
        return tuple([(out.primal, torch.zeros_like(out.primal) if out.tangent is None else out.tangent) for out in found])


TRANSFORMS = {
    "backward": backward,
    "func.grad": func_grad,
    "func.jvp": func_jvp,
    "vmap": vmap,
    "vmap(grad)": vmap_grad,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": hessian,
    "forward_ad": dual,
}


def flat(value: Any) -> list[Tensor | None]:
    if value is None or isinstance(value, Tensor):
        return [value]
    return [leaf for item in value for leaf in flat(item)]


def run(transform: Any, function: Any, entry: Entry, xs: Any, compiled: str | None) -> Any:
    """The result, or the exception."""
    f = of(function, entry)
    torch.manual_seed(7)
    try:
        if compiled is None:
            return flat(transform(f, xs))
        torch._dynamo.reset()
        if transform is backward:
            return flat(backward(torch.compile(f, backend=compiled, fullgraph=True), xs))
        return flat(torch.compile(lambda *v: transform(f, v), backend=compiled, fullgraph=True)(*xs))
    except Exception as error:
        return error


def same(a: list[Any], b: list[Any]) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        x = torch.zeros_like(y) if x is None and y is not None else x
        y = torch.zeros_like(x) if y is None and x is not None else y
        if x is not None and (x.shape != y.shape or not torch.allclose(x, y, rtol=1e-9, atol=1e-10)):
            return False
    return True


def verdict(name: str, entry: Entry, compiled: str | None) -> str:
    """``equal``, ``error`` (ours, clear), ``torch`` (torch refuses the reference too), ``refused`` (another error), or ``WRONG``."""
    torch.manual_seed(3)
    xs = entry.inputs()
    transform = TRANSFORMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = run(transform, entry.reference, entry, xs, None)
        got = run(transform, entry.op, entry, xs, compiled)
    if isinstance(got, Exception):
        text = f"{type(got).__name__}: {got}"
        if "pullback" in type(got).__module__ or entry.op.__name__ in text:
            return f"error: {text.splitlines()[0]}"
        if isinstance(expected, Exception):
            return f"torch: {text.splitlines()[0]}"
        return f"refused: {text}"
    if isinstance(expected, Exception):
        return f"WRONG: the reference raises {expected}"
    return "equal" if same(got, expected) else f"WRONG: {got} against {expected}"
