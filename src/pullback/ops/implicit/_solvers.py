"""Solvers for vectors: each stops when all examples of a running vmap have converged, and raises when they do not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..._compat import everywhere

Map = Callable[[Tensor], Tensor]
RESTART = 40
_WHY = "how many steps a solver takes depends on the values"


class ConvergenceError(RuntimeError):
    """Raised when a solver has not reached its tolerance within its iterations."""


def tolerance(dtype: torch.dtype) -> float:
    """The relative residual that is asked for where none is given: four fifths of the digits."""
    return torch.finfo(dtype).eps ** 0.8


@torch.compiler.disable(reason=_WHY)
def conjugate_gradients(apply: Map, b: Tensor, tol: float, max_iter: int) -> Tensor:
    """Solve ``apply(x) = b`` for a symmetric, positive definite linear map.

    Raises:
        ConvergenceError: if the residual stays above ``tol * ||b||``.
    """
    x, r = torch.zeros_like(b), b
    p, size, bound = r, _dot(r, r).real, tol * _norm(b)
    for _ in range(max_iter):
        if everywhere(size.sqrt() <= bound):
            return x
        q = apply(p)
        step = size * _inverse(_dot(p, q).real)
        x, r = x + step * p, r - step * q
        new = _dot(r, r).real
        p, size = r + new * _inverse(size) * p, new
    raise _failed(
        "solve: conjugate gradients", _norm(r), bound, max_iter, "Is the map symmetric and positive definite? Else give a larger tol or max_iter."
    )


@torch.compiler.disable(reason=_WHY)
def gmres(apply: Map, b: Tensor, tol: float, max_iter: int) -> Tensor:
    """Solve ``apply(x) = b`` for a linear map, by restarted GMRES.

    Raises:
        ConvergenceError: if the residual stays above ``tol * ||b||``.
    """
    x, r, used = torch.zeros_like(b), b, 0
    size, bound = _norm(b), tol * _norm(b)
    while not everywhere(size <= bound):
        change, count = _arnoldi(apply, r, bound, min(RESTART, b.numel(), max_iter - used))
        x, used, before = x + change, used + count + 1, size
        r = b - apply(x)
        size = _norm(r)
        if used >= max_iter or everywhere((size >= before) | (size <= bound)):
            break
    if not everywhere(size <= bound):
        raise _failed("solve: GMRES", size, bound, used, "Is the map singular? Else give a larger tol or max_iter.")
    return x


def _arnoldi(apply: Map, r: Tensor, bound: Tensor, size: int) -> tuple[Tensor, int]:
    """Return the change of x that makes the residual least over a Krylov space of at most `size` dimensions, and how many those are."""
    wide = torch.promote_types(r.dtype, torch.float32)
    length = _norm(r)
    basis = [r * _inverse(length)]
    columns: list[Tensor] = []
    y = r.new_zeros(0, dtype=wide)
    for k in range(size):
        known, w = torch.stack(basis), apply(basis[-1])
        first = known.conj() @ w
        w = w - first @ known
        again = known.conj() @ w  # a second pass: one of them loses orthogonality
        w = w - again @ known
        height = _norm(w)
        columns.append(torch.cat([(first + again).to(wide), height.to(wide)[None]]))
        basis.append(w * _inverse(height))
        matrix = torch.stack([torch.nn.functional.pad(c, (0, k + 2 - c.shape[0])) for c in columns], 1)
        target = torch.cat([length.to(wide)[None], torch.zeros_like(matrix[1:, 0])])
        y = torch.linalg.pinv(matrix) @ target
        if everywhere(torch.linalg.vector_norm(target - matrix @ y) <= bound):
            break
    return y.to(r.dtype) @ torch.stack(basis[:-1]), len(columns)


@torch.compiler.disable(reason=_WHY)
def anderson(apply: Map, z: Tensor, tol: float | None, max_iter: int, memory: int) -> Tensor:
    """Find ``z = apply(z)`` by iteration, accelerated by what the last `memory` steps showed; 0 for none.

    Where no `tol` is given it goes on from `tolerance` for as long as a step halves the residual.

    Raises:
        ConvergenceError: if ``||apply(z) - z||`` stays above ``tol * ||apply(z)||``.
    """
    images: list[Tensor] = []
    residuals: list[Tensor] = []
    gap = bound = z.new_zeros(())
    before = z.new_full((), torch.inf)
    for _ in range(max_iter):
        image = apply(z)
        relative = tolerance(image.dtype) if tol is None else tol
        residual = image.to(z.dtype) - z
        gap, bound = _norm(residual), relative * _norm(image.to(z.dtype))
        if everywhere(gap <= bound) and (tol is not None or everywhere(gap >= before / 2)):
            return image.to(z.dtype)
        before = gap
        images, residuals = [*images[-memory:], image.to(z.dtype)], [*residuals[-memory:], residual]
        z = _mixed(images, residuals) if memory and len(images) > 1 else image.to(z.dtype)
    raise _failed("fixed_point: the iteration", gap, bound, max_iter, "Is f a contraction? Give a larger tol or max_iter, or damp f.")


def _mixed(images: list[Tensor], residuals: list[Tensor]) -> Tensor:
    """The last image, corrected by the combination of past steps that makes the residual least."""
    wide = torch.promote_types(residuals[-1].dtype, torch.float32)
    steps = torch.stack([residuals[-1] - old for old in residuals[:-1]]).to(wide)
    moves = torch.stack([images[-1] - old for old in images[:-1]]).to(wide)
    scale = _inverse(torch.linalg.vector_norm(steps, dim=1, keepdim=True))
    steps, moves = steps * scale, moves * scale
    weights = torch.linalg.pinv(steps @ steps.mT, rtol=1e-2 * torch.finfo(wide).eps ** 0.5, hermitian=True) @ (steps @ residuals[-1].to(wide))
    return images[-1] - (weights @ moves).to(images[-1].dtype)


@torch.compiler.disable(reason=_WHY)
def newton(f: Map, x: Tensor, tol: float, max_iter: int) -> Tensor:
    """Find ``f(x) = 0`` by Newton's method, halving steps that do not bring f nearer to zero.

    Raises:
        ConvergenceError: if ``||f(x)||`` stays above ``tol * ||J|| (||x|| + ||x0||)``.
    """
    value, start = f(x), _norm(x)
    bound = torch.zeros_like(start)
    for _ in range(max_iter):
        slope = torch.func.jacrev(f)(x)
        bound = tol * torch.linalg.vector_norm(slope) * (_norm(x) + start)
        step = torch.linalg.solve_ex(slope, value)[0]
        if everywhere(_norm(value) <= bound):
            return torch.where(_norm(f(x - step)) < _norm(value), x - step, x)
        x, value = _damped(f, x, value, step)
    raise _failed(
        "root: Newton's method",
        _norm(value),
        bound,
        max_iter,
        "Is the Jacobian singular at the root, or x0 too far from it? Else give a larger tol or max_iter.",
    )


def _damped(f: Map, x: Tensor, value: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.ones_like(_norm(x))
    new = f(x - step)
    for _ in range(30):
        better = _norm(new) <= _norm(value)
        if everywhere(better):
            break
        length = torch.where(better, length, length / 2)
        new = f(x - length * step)
    return x - length * step, new


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a.conj() * b).sum()


def _norm(a: Tensor) -> Tensor:
    return torch.linalg.vector_norm(a)


def _inverse(a: Tensor) -> Tensor:
    """1 / a, and 0 where a is zero: an example that has converged stays where it is."""
    zero = a == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, a))


def _failed(what: str, gap: Tensor, bound: Tensor, count: int, question: str) -> ConvergenceError:
    try:
        shown = f" (residual {float(gap):.3g}, wanted {float(bound):.3g})"
    except RuntimeError:  # one number for each example of a vmap
        shown = ""
    return ConvergenceError(f"{what} did not converge in {count} iterations{shown}. {question}")
