"""Linear equations without a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from . import _solvers
from ._functions import Bound, check_function, check_tolerance, evaluate

MaxIter = 1000


def solve_reference(
    matvec: Callable[..., Tensor], b: Tensor, *params: Any, symmetric: bool = False, tol: float | None = None, max_iter: int = MaxIter
) -> Tensor:
    """The same by the matrix, whose columns are the images of the unit vectors."""
    unit = torch.eye(b.numel(), dtype=b.dtype, device=b.device)
    columns = [matvec(row.reshape(b.shape), *params).reshape(-1) for row in unit.unbind()]
    return torch.linalg.solve(torch.stack(columns, 1), b.reshape(-1)).reshape(b.shape) if columns else b * 1


@op(reference=solve_reference, static=("matvec", "symmetric", "tol", "max_iter"), autocast="inputs")
def solve(
    matvec: Callable[..., Tensor], b: Tensor, *params: Any, symmetric: bool = False, tol: float | None = None, max_iter: int = MaxIter
) -> Tensor:
    """Return x with ``matvec(x, *params) = b``, for a linear map that is given by its products, differentiated implicitly.

    Math:
        A x = b gives A dx = db - dA x. So the cotangent u = A^-H dy of b comes from one more solution, with the transposed map, and that of the
        parameters is -u^H dA x, one product's vjp: no step of the solver is kept or differentiated. For a matrix, `torch.linalg.solve` is at hand.

    Args:
        matvec: Function ``(x, *params)`` that returns A x, linear in `x`, of x's shape.
        b: Right-hand side, floating or complex, any shape.
        *params: What `matvec` depends on: tensors, or containers of them.
        symmetric: Whether A is symmetric (Hermitian) and positive definite: conjugate gradients, else GMRES.
        tol: Residual relative to b's 2-norm; None for four fifths of the digits of b's dtype.
        max_iter: Most products, also in backward.

    Returns:
        A tensor of b's shape and dtype.

    Saves:
        `params`: nothing beyond the arguments and the output, however many iterations it takes.

    Supports:
        float64, float32, complex; bfloat16 and float16 with the few digits that they have; CPU and CUDA; derivatives of any order, torch.func (vmap
        solves all examples together), forward mode, autocast (`matvec` runs in the precision of the arguments). torch.compile runs it eagerly.

    Raises:
        TypeError: for a `b` that is no floating tensor, a number that is none, or a `matvec` that is no function or returns no tensor.
        ValueError: for a number out of range, or a `matvec` that returns another shape or uses tensors that require grad and are not among `params`.
        RuntimeError: where the residual does not come down to `tol`.

    Example:
        >>> import torch, pullback as pb
        >>> def laplace(x, shift):
        ...     return (2 + shift) * x - torch.nn.functional.pad(x[1:], (0, 1)) - torch.nn.functional.pad(x[:-1], (1, 0))
        >>> shift = torch.tensor(0.5, requires_grad=True)
        >>> x = pb.ops.solve(laplace, torch.ones(4), shift, symmetric=True)
        >>> x.sum().backward()
        >>> x.detach(), shift.grad
        (tensor([0.9091, 1.2727, 1.2727, 0.9091]), tensor(-4.8926))

    References:
        Blondel et al., Efficient and modular implicit differentiation, 2022, arXiv:2105.15183, section 2.1; Saad and Schultz, GMRES, 1986,
        DOI 10.1137/0907058.
    """
    _check(matvec, b, symmetric, tol, max_iter)
    prepared = getattr(matvec, "prepared", None)
    if prepared is None:
        evaluate("solve", "matvec", Bound(matvec, params), b)
    if b.numel() == 0:
        return torch.zeros_like(b)
    with torch.no_grad():
        product = Bound(matvec, params).detached().at if prepared is None else prepared(*params)
        return _solved(product, b, symmetric, tol, max_iter)


@solve.vjp("b", "params")
def _(dy, out, matvec, params, symmetric, tol, max_iter, wanted):
    adjoint = matvec if symmetric else Transposed(matvec, dy)
    u = solve(adjoint, dy, *params, symmetric=symmetric, tol=tol, max_iter=max_iter)
    return u if wanted[0] else None, Bound(matvec, params).gradients(out, -u) if wanted[1] else None


@solve.samples
def _() -> Iterator[Sample]:
    b = torch.linspace(-1.0, 2.0, 5, dtype=torch.float64)
    yield sample(shifted, b, torch.linspace(2.5, 4.0, 5, dtype=torch.float64))
    yield sample(laplace, b, torch.tensor(0.5, dtype=torch.float64), symmetric=True)


class Transposed:
    """The map ``v -> A^H v``, of a linear map given as a function."""

    def __init__(self, matvec: Any, like: Tensor) -> None:
        self.matvec = matvec
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device

    def __call__(self, v: Tensor, *params: Any) -> Tensor:
        return Bound(self.matvec, params).pull(self._anywhere(), v)

    def prepared(self, *params: Any) -> Callable[[Tensor], Tensor]:
        return Bound(self.matvec, params).transposed(self._anywhere())

    def _anywhere(self) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


def _solved(product: Callable[[Tensor], Tensor], b: Tensor, symmetric: bool, tol: float | None, max_iter: int) -> Tensor:
    def flat(v: Tensor) -> Tensor:
        return product(v.reshape(b.shape)).reshape(-1).to(b.dtype)

    method = _solvers.conjugate_gradients if symmetric else _solvers.gmres
    return method(flat, b.reshape(-1), _solvers.tolerance(b.dtype) if tol is None else tol, max_iter).reshape(b.shape)


def _check(matvec: Any, b: Any, symmetric: Any, tol: Any, max_iter: Any) -> None:
    check_function("solve", "matvec", matvec)
    if not (isinstance(b, Tensor) and b.is_complex()):
        arguments.floating("solve", b=b)
    arguments.flag("solve", "symmetric", symmetric)
    check_tolerance("solve", tol)
    arguments.integer("solve", "max_iter", max_iter, low=1)


def shifted(x: Tensor, diagonal: Tensor) -> Tensor:
    """A product with a matrix that is neither symmetric nor normal."""
    return diagonal * x + 0.5 * x.roll(1, -1) - 0.25 * x.roll(2, -1)


def laplace(x: Tensor, shift: Tensor) -> Tensor:
    """A product with a symmetric, positive definite matrix."""
    return (2 + shift) * x - torch.nn.functional.pad(x[..., 1:], (0, 1)) - torch.nn.functional.pad(x[..., :-1], (1, 0))
