import pytest
import torch

import pullback as pb

lookup, sample = pb.ops.lookup, pb.sample


def table(n=9):
    return torch.sin(torch.linspace(-2, 2, n, dtype=torch.float64))


def test_against_reference(prove):
    edges = [
        sample(torch.empty(0, 3).double(), table(), -2, 2),
        sample(torch.tensor(0.3).double(), table(2), -2, 2),
        sample(torch.tensor([-2.0, -0.5, 0.25, 2.0, 3.0, -torch.inf, torch.inf]).double(), table(), -2, 2),
    ]
    prove(lookup, edges=edges, kept=0)


def test_declared_slopes():
    x = torch.tensor([-9.0, 0.1, 0.9], dtype=torch.float64, requires_grad=True)
    points = torch.linspace(-2, 2, 9, dtype=torch.float64)
    y = lookup(x, points.sin(), -2, 2, points.cos())
    torch.testing.assert_close(y.detach(), torch.tensor([-2.0, 0.0, 1.0], dtype=torch.float64).sin())
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.tensor([0.0, 1.0, torch.tensor(1.0).double().cos()], dtype=torch.float64))


def test_nan_stays_nan_and_leaves_the_table_alone():
    x, values = torch.tensor([torch.nan, 0.0], dtype=torch.float64), table().requires_grad_()
    y = lookup(x, values, -2, 2)
    assert y[0].isnan()
    assert torch.autograd.grad(y[1], values)[0].tolist() == [0] * 4 + [1] + [0] * 4


def test_check(passes_check):
    passes_check(lookup)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(lookup, thorough=True)


X, T = torch.ones(2), torch.ones(3)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X.long(), T, 0, 1), TypeError, "lookup: x must be a floating tensor"),
        ((X, T.long(), 0, 1), TypeError, "lookup: table must be a floating tensor"),
        ((X, torch.ones(2, 2), 0, 1), ValueError, r"lookup: table must have the shape \[n\] with n at least 2, got \[2, 2\]"),
        ((X, torch.ones(1), 0, 1), ValueError, r"n at least 2, got \[1\]"),
        ((X, T, 1, 1), ValueError, "lookup: low must be below high, got 1 and 1"),
        ((X, T, None, 1), TypeError, "lookup: low must be a number"),
        ((X, T, 0, 1, torch.ones(4)), ValueError, r"lookup: slopes must have the shape \[3\], got \[4\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        lookup(*args)
