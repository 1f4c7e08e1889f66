"""Lyapunov equations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample


def lyapunov_reference(s: Tensor, q: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    """The same by the whole linear system, of n² equations."""
    eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
    return torch.linalg.tensorsolve(torch.einsum("ij,kl->ikjl", s, eye) + torch.einsum("ij,lk->ikjl", eye, s), q)


@op(reference=lyapunov_reference, static=("roots", "v"))
def lyapunov(s: Tensor, q: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    """Return X with ``S X + X S = Q``; `roots` and `v` must belong to `s`, so a check may change none of them alone.

    Math:
        dX solves the same equation with the right-hand side dQ - dS X - X dS. So with Y, the solution for dX's cotangent, that of Q is Y and that
        of S is -(Y X^H + X^H Y). In the eigenvectors of S the solution is a division by sums of eigenvalues; where such a sum is zero, so is
        X's part.

    Args:
        s: Hermitian, positive semidefinite, shape ``[..., n, n]``.
        q: Right-hand side, shape ``[..., n, n]``.
        roots: Eigenvalues of `s`, shape ``[..., n]``; not differentiated, since they say nothing that `s` does not.
        v: Eigenvectors of `s`, shape ``[..., n, n]``; not differentiated.
    """
    x = _divided(q, roots, v)
    return x + _divided(q - s @ x - x @ s, roots, v)  # refined once: rounding of the eigenvectors goes, and X is a function of S


@lyapunov.vjp("q")
def _(dx: Tensor, s: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    return lyapunov(s, dx, roots, v)


@lyapunov.vjp("s")
def _(dx: Tensor, out: Tensor, s: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    y = lyapunov(s, dx, roots, v)
    return -(y @ out.mH + out.mH @ y)


@lyapunov.samples
def _() -> Iterator[Sample]:
    b = torch.tensor([[1.5, 0.5, -0.3], [0.1, -1.0, 0.4], [0.6, 0.2, 0.7]], dtype=torch.float64)
    s = b @ b.mT
    yield sample(s, b + b.mT, *torch.linalg.eigh(s))


def _divided(q: Tensor, roots: Tensor, v: Tensor) -> Tensor:
    sums = roots.unsqueeze(-1) + roots.unsqueeze(-2)
    zero = sums <= 0
    return v @ torch.where(zero, 0.0, (v.mH @ q @ v) / torch.where(zero, 1.0, sums)) @ v.mH
