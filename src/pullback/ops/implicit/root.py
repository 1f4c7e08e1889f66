"""Roots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from . import _solvers
from ._functions import Bound, check_function, check_tolerance, evaluate


def root_reference(f: Callable[..., Tensor], x0: Tensor, *params: Any, tol: float | None = None, max_iter: int = 100) -> Tensor:
    """The same by Newton's method, unrolled: autograd goes through every step."""
    x = x0.detach()
    for _ in range(30):
        slope = torch.func.jacrev(lambda x: f(x.reshape(x0.shape), *params).reshape(-1))(x.reshape(-1))
        x = x - torch.linalg.solve(slope, f(x, *params).reshape(-1)).reshape(x0.shape)
    return x


@op(reference=root_reference, static=("f", "x0", "tol", "max_iter"), autocast="inputs")
def root(f: Callable[..., Tensor], x0: Tensor, *params: Any, tol: float | None = None, max_iter: int = 100) -> Tensor:
    """Return x with ``f(x, *params) = 0``, found by damped Newton steps and differentiated implicitly.

    Math:
        f(x, p) = 0 gives J dx = -(df/dp) dp with J = df/dx. So with u = -J^-T dx the cotangent of p is u^T df/dp, one vjp of f: no step of Newton's
        method is kept or differentiated. J is a full matrix, by `torch.func.jacrev`: for a few hundred unknowns; for independent equations, use vmap.

    Args:
        f: Function ``(x, *params)`` that returns a tensor of x's shape, as many equations as unknowns.
        x0: Where to begin, floating, any shape. It is not differentiated: the root does not depend on it.
        *params: What `f` depends on: tensors, or containers of them.
        tol: Largest ``||f(x)||`` relative to ``||J|| (||x|| + ||x0||)``; None for four fifths of the digits.
        max_iter: Most Newton steps.

    Returns:
        A tensor of x0's shape and dtype.

    Saves:
        `params`: nothing beyond the arguments and the output.

    Supports:
        float64, float32; CPU and CUDA; derivatives of any order, torch.func (vmap steps all examples together), forward mode, autocast (`f` runs in
        the precision of the arguments). torch.compile runs it eagerly.

    Raises:
        TypeError: for an `x0` that is no floating tensor of at least float32, a number that is none, or an `f` that is no function or returns no
            tensor.
        ValueError: for a number out of range, or an `f` that returns another shape or uses tensors that require grad and are not among `params`.
        RuntimeError: where `f` does not come down to `tol`.

    Example:
        >>> import torch, pullback as pb
        >>> a = torch.tensor(8.0, requires_grad=True)
        >>> x = pb.ops.root(lambda x, a: x**3 - a, torch.tensor(1.0), a)
        >>> x.backward()
        >>> x.detach(), a.grad
        (tensor(2.), tensor(0.0833))

    References:
        Blondel et al., Efficient and modular implicit differentiation, 2022, arXiv:2105.15183, section 2.1.
    """
    _check(f, x0, tol, max_iter)
    bound = Bound(f, params)
    evaluate("root", "f", bound, x0)
    if x0.numel() == 0:
        return torch.zeros_like(x0)
    with torch.no_grad():
        value = bound.detached().at
        flat = _solvers.newton(
            lambda x: value(x.reshape(x0.shape)).reshape(-1),
            x0.detach().reshape(-1),
            _solvers.tolerance(x0.dtype) if tol is None else tol,
            max_iter,
        )
    return flat.reshape(x0.shape)


@root.vjp("params")
def _(dx, out, f, params):
    bound = Bound(f, params)
    size = out.numel()
    if not size:
        return bound.gradients(out, dx)
    slope = torch.func.jacrev(bound.at)(out).reshape(size, size)
    return bound.gradients(out, torch.linalg.solve(slope.mT, -dx.reshape(size)).reshape(out.shape))


@root.samples
def _() -> Iterator[Sample]:
    x0 = torch.ones(3, dtype=torch.float64)
    yield sample(balance, x0, torch.linspace(0.5, 2.0, 3, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64))
    yield sample(balance, x0[0], torch.tensor(1.5, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64))


def _check(f: Any, x0: Any, tol: Any, max_iter: Any) -> None:
    check_function("root", "f", f)
    arguments.floating("root", x0=x0)
    if x0.dtype in (torch.bfloat16, torch.float16):
        raise TypeError(f"root: x0 must be float32 or float64, got {x0.dtype}, which has too few digits for Newton's method. Convert it: x0.float().")
    check_tolerance("root", tol)
    arguments.integer("root", "max_iter", max_iter, low=1)


def balance(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Coupled equations with one root in reach of 1."""
    return x**3 + b * x.sum() - a
