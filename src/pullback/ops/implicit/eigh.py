"""Eigenvalues and eigenvectors, safe where eigenvalues coincide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from ._functions import check_tolerance


class Eigen(NamedTuple):
    """What `eigh` returns: eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eigh_reference(a: Tensor, tol: float | None = None) -> Eigen:
    """The same by torch, whose gradient is infinite or NaN where eigenvalues coincide."""
    return Eigen(*torch.linalg.eigh((a + a.mH) / 2))


@op(reference=eigh_reference, static=("tol",))
def eigh(a: Tensor, tol: float | None = None) -> Eigen:
    """Return eigenvalues and eigenvectors of the Hermitian part of a matrix, with a gradient that is finite where eigenvalues coincide.

    Math:
        A = V diag(w) V^H gives dA's cotangent V (diag(dw) + F * (V^H dV)) V^H, its Hermitian part, with F_ij = 1 / (w_j - w_i). Where w_i and w_j
        coincide, F is infinite, and V is determined up to a rotation among the vectors of that eigenvalue only: F_ij = 0 is taken there. That is
        exact for every function of A that does not depend on this rotation and depends on coinciding eigenvalues alike: symmetric functions of the
        eigenvalues, projectors onto whole eigenspaces. A function that mixes both, such as V f(w) V^H, loses the part within an eigenspace: see
        `matrix_sqrt`.

    Args:
        a: Real or complex, shape ``[..., n, n]``; its Hermitian part (a + a^H) / 2 counts.
        tol: How near eigenvalues coincide, relative to the greatest absolute one; None for n units in the last place.

    Returns:
        ``(eigenvalues, eigenvectors)``: ``[..., n]``, real and ascending, and ``[..., n, n]``, one a column.

    Saves:
        The outputs: nothing beyond.

    Supports:
        float64, float32, complex; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast (runs in a's dtype).

    Raises:
        TypeError: for an `a` that is no floating or complex tensor of at least single precision, or a `tol` that is no number.
        ValueError: for an `a` that is not square, or a negative `tol`.

    Example:
        >>> import torch, pullback as pb
        >>> a = torch.eye(3, requires_grad=True)
        >>> pb.ops.eigh(a).eigenvalues.square().sum().backward()
        >>> a.grad
        tensor([[2., 0., 0.],
                [0., 2., 0.],
                [0., 0., 2.]])

    References:
        Giles, Collected matrix derivative results for forward and reverse mode algorithmic differentiation, 2008, DOI 10.1007/978-3-540-68942-3_4,
        section 3.1; Liao, Liu, Wang and Xiang, Differentiable programming tensor networks, 2019, arXiv:1903.09650, on coinciding values.
    """
    arguments.square_matrix("eigh", a=a)
    check_tolerance("eigh", tol)
    return Eigen(*torch.linalg.eigh((a + a.mH) / 2))


@eigh.vjp("a")
def _(dys, out, tol):
    w, v = out
    dw, dv = dys
    gaps = w.unsqueeze(-2) - w.unsqueeze(-1)
    relative = w.shape[-1] * torch.finfo(w.dtype).eps if tol is None else tol
    same = gaps.abs() <= relative * w.abs().amax(-1)[..., None, None] if w.shape[-1] else gaps.abs() < 0
    factor = torch.where(same, 0.0, 1 / torch.where(same, 1.0, gaps))
    inner = factor * (v.mH @ dv) + torch.diag_embed(dw).to(v.dtype)
    grad = v @ inner @ v.mH
    return (grad + grad.mH) / 2


@eigh.samples
def _() -> Iterator[Sample]:
    a = torch.tensor([[2.0, 0.5, -0.3], [0.1, -1.0, 0.4], [0.6, 0.2, 0.7]], dtype=torch.float64)
    yield sample(a)
    yield sample(torch.stack([a[:2, :2], a[1:, 1:]]))
