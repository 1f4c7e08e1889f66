"""The square root of a positive semidefinite matrix."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...authoring.op import Sample, keep, op, sample
from .. import arguments
from ._lyapunov import lyapunov, noise, solved


def matrix_sqrt_reference(a: Tensor) -> Tensor:
    """The same by torch's eigenvectors, whose gradient is infinite or NaN where eigenvalues coincide."""
    w, v = torch.linalg.eigh((a + a.mH) / 2)
    return (v * w.sqrt().unsqueeze(-2)) @ v.mH


@op(reference=matrix_sqrt_reference)
def matrix_sqrt(a: Tensor) -> Tensor:
    """Return the positive semidefinite S with ``S S = (a + a^H) / 2``, with a gradient that coinciding eigenvalues do not disturb.

    Math:
        S S = A gives dS S + S dS = dA, a Lyapunov equation, which is its own adjoint: the cotangent X of A solves S X + X S = dS. In the
        eigenvectors of S that is a division by s_i + s_j: sums, where the derivative of eigenvectors has differences. Where s_i = s_j = 0 the
        derivative is infinite; X's part there is taken as zero.

    Args:
        a: Real or complex, shape ``[..., n, n]``, with a positive semidefinite Hermitian part. Eigenvalues below zero by rounding count as zero;
            others give NaN.

    Returns:
        A Hermitian tensor of a's shape and dtype.

    Saves:
        The eigenvectors and roots of the eigenvalues: n² + n values for each matrix.

    Supports:
        float64, float32, complex; CPU and CUDA; derivatives of any order, torch.func, forward mode, torch.compile, autocast (runs in a's dtype).

    Raises:
        TypeError: for an `a` that is no floating or complex tensor of at least single precision.
        ValueError: for an `a` that is not square.

    Example:
        >>> import torch, pullback as pb
        >>> a = (4 * torch.eye(2)).requires_grad_()
        >>> s = pb.ops.matrix_sqrt(a)
        >>> s.sum().backward()
        >>> s.detach(), a.grad
        (tensor([[2., 0.],
                [0., 2.]]), tensor([[0.2500, 0.2500],
                [0.2500, 0.2500]]))

    References:
        Higham, Functions of Matrices, 2008, DOI 10.1137/1.9780898717778, section 6.1.
    """
    arguments.square_matrix("matrix_sqrt", a=a)
    w, v = torch.linalg.eigh((a + a.mH) / 2)
    s = torch.where(w.abs() <= noise(w), 0.0, w).sqrt()
    return keep((v * s.unsqueeze(-2)) @ v.mH, s=s, v=v)


@matrix_sqrt.vjp("a")
def _(dy: Tensor, out: Tensor, s: Tensor, v: Tensor) -> Tensor:
    dy = (dy + dy.mH) / 2
    return lyapunov(out, dy) if torch.is_grad_enabled() else solved(out, dy, s, v)


@matrix_sqrt.jvp
def _(tangents, out: Tensor) -> Tensor:
    return lyapunov(out, (tangents.a + tangents.a.mH) / 2)


@matrix_sqrt.samples
def _() -> Iterator[Sample]:
    b = torch.tensor([[1.5, 0.5, -0.3], [0.1, -1.0, 0.4], [0.6, 0.2, 0.7]], dtype=torch.float64)
    yield sample(b @ b.mT + 0.1 * b)
    yield sample(torch.stack([b[:2, :2] @ b[:2, :2].mT, torch.eye(2, dtype=torch.float64)]))
