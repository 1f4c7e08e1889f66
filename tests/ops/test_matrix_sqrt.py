import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb
from pullback.ops.implicit._lyapunov import lyapunov

matrix_sqrt, sample = pb.ops.matrix_sqrt, pb.sample


def product_form(a):
    """The same gradients as the op where eigenvalues coincide: Newton's iteration, without eigenvectors."""
    a = (a + a.mH) / 2
    x, eye = a, torch.eye(a.shape[-1], dtype=a.dtype)
    for _ in range(40):
        x = (x + torch.linalg.solve(x, a)) / 2 + 0 * eye
    return x


def test_against_reference(prove):
    """With a reference that can be differentiated where eigenvalues coincide."""
    edges = [sample(torch.ones(1, 1).double()), sample(torch.empty(0, 2, 2).double())]
    prove(matrix_sqrt, gradient=product_form, edges=edges, kept=5, dtypes=(torch.float32,))


def test_identity():
    eye = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(matrix_sqrt, eye, check_forward_ad=True)
    assert gradgradcheck(matrix_sqrt, eye)
    torch.testing.assert_close(torch.autograd.grad(matrix_sqrt(eye).sum(), eye)[0], torch.full_like(eye, 0.5))


def test_complex_matrices():
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(3, 3, generator=generator, dtype=torch.complex128)
    a = (b @ b.mH + 0.1 * b).requires_grad_()
    s = matrix_sqrt(a)
    torch.testing.assert_close(s @ s, (a + a.mH) / 2)
    assert gradcheck(matrix_sqrt, a)


def test_a_singular_matrix():
    a = torch.diag(torch.tensor([0.0, 0.0, 4.0], dtype=torch.float64)).requires_grad_()
    s = matrix_sqrt(a)
    assert s.diagonal().tolist() == [0.0, 0.0, 2.0]
    (grad,) = torch.autograd.grad(s[2, 2], a)
    assert grad.diagonal().tolist() == [0.0, 0.0, 0.25]


def test_a_negative_eigenvalue_gives_nan():
    assert matrix_sqrt(torch.diag(torch.tensor([-1.0, 4.0]))).isnan().any()


def test_lyapunov(prove, passes_check):
    prove(lyapunov, dtypes=(torch.float32,), edges=[sample(torch.ones(1, 1).double(), torch.ones(1, 1).double())])
    passes_check(lyapunov, select=["PB5"])


@pytest.mark.slow
def test_lyapunov_thorough(passes_check):
    passes_check(lyapunov, thorough=True)


def test_check(passes_check):
    passes_check(matrix_sqrt)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(matrix_sqrt, thorough=True)


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (torch.ones(2, 3), ValueError, r"matrix_sqrt: a must have the shape \[..., n, n\], got \[2, 3\]"),
        (torch.eye(2, dtype=torch.float16), TypeError, "matrix_sqrt: a must be float32, .* got torch.float16"),
    ],
)
def test_refuses(a, error, message):
    with pytest.raises(error, match=message):
        matrix_sqrt(a)
