import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb
from pullback.ops.implicit.solve import laplace, shifted

solve, sample = pb.ops.solve, pb.sample
WHOLE_GRAPH = ("compiled",)  # how many iterations there are depends on the data; see test_compiled_around_it


def dense(x, matrix):
    return matrix @ x


def test_against_reference(prove):
    edges = [
        sample(shifted, torch.empty(0).double(), torch.empty(0).double()),
        sample(laplace, torch.ones(1).double(), torch.tensor(0.5).double()),
        sample(shifted, torch.zeros(5).double(), torch.linspace(2.5, 4, 5).double()),
    ]
    prove(solve, edges=edges, kept=0, dtypes=(torch.float32,), skip=WHOLE_GRAPH)


def test_a_large_matrix_in_many_restarts():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(300, 300, generator=generator, dtype=torch.float64) / 12 + 3 * torch.eye(300, dtype=torch.float64)
    b = torch.randn(300, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(solve(dense, b, matrix), torch.linalg.solve(matrix, b), rtol=0, atol=1e-10)


def test_complex():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, generator=generator, dtype=torch.complex128) + 4 * torch.eye(4)
    b = torch.randn(4, generator=generator, dtype=torch.complex128)
    assert gradcheck(lambda b, m: solve(dense, b, m), (b.requires_grad_(), matrix.requires_grad_()))
    hermitian = matrix.detach() @ matrix.detach().mH
    assert gradcheck(lambda b: solve(dense, b, hermitian, symmetric=True), b)


def test_parameters_in_containers():
    def product(x, params):
        return x @ params["weight"] + params["shifts"][0] * x

    weight, shift = torch.eye(2).double().requires_grad_(), torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    b = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)
    got = torch.autograd.grad(solve(product, b, {"weight": weight, "shifts": [shift]}).sum(), (weight, shift))
    want = torch.autograd.grad(torch.linalg.solve((weight + shift * torch.eye(2)).T, b.T).sum(), (weight, shift))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_few_digits(dtype):
    b, diagonal = torch.linspace(-1, 2, 5, dtype=dtype), torch.linspace(2.5, 4, 5, dtype=dtype)
    x = solve(shifted, b, diagonal)
    assert x.dtype is dtype
    torch.testing.assert_close(x.double(), solve(shifted, b.double(), diagonal.double()), rtol=0, atol=0.05)


def test_derivatives_of_any_order():
    b, shift = torch.linspace(-1, 2, 4, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda shift: torch.autograd.grad(solve(laplace, b, shift, symmetric=True).sin().sum(), shift, create_graph=True)[0], shift)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of dynamo, which looks at it where a graph breaks
def test_compiled_around_it():
    b, shift = torch.linspace(-1, 2, 4), torch.tensor(0.5, requires_grad=True)
    compiled = torch.compile(lambda b, shift: solve(laplace, b, shift, symmetric=True) * 2, backend="eager")
    found = [torch.autograd.grad(f(b, shift).sum(), shift)[0] for f in (compiled, lambda b, shift: solve(laplace, b, shift, symmetric=True) * 2)]
    torch.testing.assert_close(*found)


def test_what_does_not_converge_raises():
    b = torch.ones(3)
    with pytest.raises(RuntimeError, match=r"GMRES did not converge in \d+ iterations \(residual 1.7.*Is the map singular"):
        solve(lambda x: 0 * x, b)
    with pytest.raises(RuntimeError, match=r"conjugate gradients did not converge in 20 iterations.*symmetric and positive definite"):
        solve(lambda x: x.roll(1), torch.tensor([1.0, 0.0, 0.0]), symmetric=True, max_iter=20)


def test_a_hidden_parameter_raises():
    hidden = torch.eye(2, requires_grad=True)
    with pytest.raises(ValueError, match="solve: matvec uses tensors that require grad and are not among its arguments"):
        solve(lambda x: hidden @ x, torch.ones(2))
    with torch.no_grad():
        torch.testing.assert_close(solve(lambda x: hidden @ x, torch.ones(2)), torch.ones(2))


def test_check(passes_check):
    passes_check(solve, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(solve, thorough=True)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((torch.eye(2), torch.ones(2)), {}, TypeError, "solve: matvec must be a function, got Tensor"),
        ((dense, [1.0]), {}, TypeError, "solve: b must be a floating tensor, got list"),
        ((dense, torch.ones(2), torch.ones(3, 2)), {}, ValueError, r"matvec must return a tensor of the shape \[2\], .* got \[3\]"),
        ((lambda x: None, torch.ones(2)), {}, TypeError, r"matvec must return a tensor of the shape \[2\], got NoneType"),
        ((dense, torch.ones(2), torch.eye(2)), {"max_iter": 0}, ValueError, "solve: max_iter must be at least 1, got 0"),
    ],
)
def test_refuses(args, options, error, message):
    with pytest.raises(error, match=message):
        solve(*args, **options)
