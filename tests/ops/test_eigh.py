import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb

eigh, sample = pb.ops.eigh, pb.sample


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 0).double()), sample(torch.empty(0, 2, 2).double()), sample(torch.ones(1, 1).double())]
    prove(eigh, edges=edges, kept=0, dtypes=(torch.float32,))


def test_symmetric_functions_of_equal_eigenvalues():
    a = torch.diag(torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(eigh(a).eigenvalues.log().sum(), a)[0], torch.linalg.inv(a.detach()))


def test_projector_onto_an_eigenspace_of_equal_eigenvalues():
    """Where torch's gradient is NaN, ours is that of a contour integral, which knows no eigenvectors."""

    def projector(a, decompose):
        v = decompose(a)[1][:, :2]
        return v @ v.mT

    def by_newton(a):
        shifted = (a + a.mT) / 2 - 3.5 * torch.eye(3, dtype=a.dtype)
        sign = -shifted / 1.5
        for _ in range(8):  # Newton-Schulz: the sign of a matrix whose eigenvalues are near -1 and 1
            sign = (3 * sign - sign @ sign @ sign) / 2
        return (sign + torch.eye(3, dtype=a.dtype)) / 2

    a = torch.diag(torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64)).requires_grad_()
    weights = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)
    torch.testing.assert_close(projector(a, eigh), by_newton(a))
    got, want = (torch.autograd.grad((f * weights).sum(), a)[0] for f in (projector(a, eigh), by_newton(a)))
    torch.testing.assert_close(got, want)
    assert torch.autograd.grad((projector(a, torch.linalg.eigh) * weights).sum(), a)[0].isnan().any()


def test_identity_has_finite_gradients_and_derivatives_of_them():
    a = torch.eye(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(sum((part**2).sum() for part in eigh(a)), a, create_graph=True)
    assert first.isfinite().all()
    assert torch.autograd.grad(first.sum(), a)[0].isfinite().all()


def test_complex_matrices():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 3, generator=generator, dtype=torch.complex128, requires_grad=True)

    def without_phases(a):
        w, v = eigh(a)
        return (v * w.sin().unsqueeze(-2)) @ v.mH

    assert gradcheck(without_phases, a)
    assert gradgradcheck(without_phases, a)


def test_check(passes_check):
    passes_check(eigh)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(eigh, thorough=True)


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (torch.ones(2, 3), ValueError, r"eigh: a must have the shape \[..., n, n\], got \[2, 3\]"),
        (torch.ones(2), ValueError, r"eigh: a must have the shape \[..., n, n\], got \[2\]"),
        (torch.eye(2, dtype=torch.bfloat16), TypeError, "eigh: a must be float32, float64, complex64 or complex128, got torch.bfloat16"),
        (1.0, TypeError, "eigh: a must be a tensor, got float"),
    ],
)
def test_refuses(a, error, message):
    with pytest.raises(error, match=message):
        eigh(a)
