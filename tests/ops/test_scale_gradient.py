import pytest
import torch

import pullback as pb

scale_gradient, sample = pb.ops.scale_gradient, pb.sample


def test_against_reference(prove):
    prove(scale_gradient, edges=[sample(torch.empty(0, 3).double(), 2), sample(torch.tensor(0.5).double(), 0.0)], kept=0)


def test_each_row_with_its_own_scale():
    x = torch.ones(2, 3, requires_grad=True)
    assert torch.autograd.grad(scale_gradient(x, torch.tensor([[2.0], [0.0]])).sum(), x)[0].tolist() == [[2.0] * 3, [0.0] * 3]


def test_check(passes_check):
    passes_check(scale_gradient)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(scale_gradient, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 1), TypeError, "scale_gradient: x must be a floating tensor"),
        ((torch.ones(2), None), TypeError, "scale_gradient: scale must be a number or a tensor, got NoneType None"),
        ((torch.ones(2), torch.ones(3)), ValueError, r"scale_gradient: scale must broadcast to the shape \[2\], got the shape \[3\]"),
        ((torch.ones(2), torch.ones(3, 2)), ValueError, r"must broadcast to the shape \[2\], got the shape \[3, 2\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        scale_gradient(*args)
