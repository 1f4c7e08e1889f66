"""Lyapunov equations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample


def lyapunov_reference(s: Tensor, q: Tensor) -> Tensor:
    """The same by the whole linear system, of n² equations."""
    s, n = (s + s.mH) / 2, s.shape[-1]
    eye = torch.eye(n, dtype=s.dtype, device=s.device)
    system = torch.kron(s, eye) + torch.kron(eye, s.T.contiguous())
    return (torch.linalg.pinv(system, hermitian=True) @ q.reshape(-1)).reshape(n, n)


@op(reference=lyapunov_reference)
def lyapunov(s: Tensor, q: Tensor) -> Tensor:
    """Return X with ``S X + X S = Q`` for the Hermitian part S of `s`.

    Math:
        dX solves the same equation with the right-hand side dQ - dS X - X dS. So with Y, the solution for dX's cotangent, that of Q is Y and that
        of S is the Hermitian part of -(Y X^H + X^H Y). In the eigenvectors of S the solution is a division by sums of eigenvalues; where such a
        sum is zero, so is X's part.

    Args:
        s: Real or complex, shape ``[..., n, n]``.
        q: Right-hand side, shape ``[..., n, n]``.
    """
    s = (s + s.mH) / 2
    return solved(s, q, *torch.linalg.eigh(torch.where(s.isfinite(), s, 0.0)))  # NaN, which eigh refuses, comes into X by S itself


@lyapunov.vjp("s", "q")
def _(dx: Tensor, out: Tensor, s: Tensor, wanted: tuple[bool, bool]) -> tuple[Tensor | None, Tensor | None]:
    y = lyapunov(s, dx)
    if not wanted[0]:
        return None, y
    grad = y @ out.mH + out.mH @ y
    return -(grad + grad.mH) / 2, y


@lyapunov.samples
def _() -> Iterator[Sample]:
    b = torch.tensor([[1.5, 0.5, -0.3], [0.1, -1.0, 0.4], [0.6, 0.2, 0.7]], dtype=torch.float64)
    yield sample(b @ b.mT, b + b.mT)


def solved(s: Tensor, q: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    """The solution X, where the eigenvalues and eigenvectors of S are known."""
    x = _divided(q, roots, v)
    return x + _divided(q - s @ x - x @ s, roots, v)  # refined once: rounding of the eigenvectors goes, and X is a function of S


def _divided(q: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    sums = roots.unsqueeze(-1) + roots.unsqueeze(-2)
    zero = sums.abs() <= noise(roots).unsqueeze(-1)
    return v @ torch.where(zero, 0.0, (v.mH @ q @ v) / torch.where(zero, 1.0, sums)) @ v.mH


def noise(roots: Tensor) -> Tensor:
    """What eigenvalues below count as zero."""
    if roots.shape[-1] == 0:
        return roots.new_zeros((*roots.shape[:-1], 1))
    return roots.shape[-1] * torch.finfo(roots.dtype).eps * roots.detach().abs().amax(-1, keepdim=True)
