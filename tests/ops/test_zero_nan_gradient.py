import pytest
import torch

import pullback as pb

zero_nan_gradient, sample = pb.ops.zero_nan_gradient, pb.sample


def grad(dy, **options):
    x = torch.zeros_like(dy, requires_grad=True)
    return torch.autograd.grad(zero_nan_gradient(x, **options), x, dy)[0]


def test_against_reference(prove):
    prove(zero_nan_gradient, edges=[sample(torch.empty(0, 3).double()), sample(torch.tensor(0.5).double())], kept=0)


def test_what_is_zeroed():
    dy = torch.tensor([torch.nan, torch.inf, -torch.inf, 2.0])
    assert grad(dy).tolist() == [0, 0, 0, 2]
    assert grad(dy, infinite=False).tolist() == [0, torch.inf, -torch.inf, 2]


def test_second_derivatives_of_a_hook():
    x = torch.linspace(-1, 2, 12, dtype=torch.float64).requires_grad_()
    found = []
    for function in (zero_nan_gradient, zero_nan_gradient.__pullback__["reference"]):
        (first,) = torch.autograd.grad((function(x.relu()).sqrt() * x).sum(), x, create_graph=True)
        found.append((first.detach(), torch.autograd.grad(first[6:].sin().sum(), x)[0][6:]))
    torch.testing.assert_close(*found)
    assert found[0][0].isfinite().all()


def test_check(passes_check):
    passes_check(zero_nan_gradient)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(zero_nan_gradient, thorough=True)


def test_refuses():
    with pytest.raises(TypeError, match="zero_nan_gradient: x must be a floating tensor"):
        zero_nan_gradient(torch.ones(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="zero_nan_gradient: infinite must be True or False, got int 1"):
        zero_nan_gradient(torch.ones(2), 1)
