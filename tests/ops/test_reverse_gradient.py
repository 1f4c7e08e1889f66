import pytest
import torch

import pullback as pb

reverse_gradient, sample = pb.ops.reverse_gradient, pb.sample


def test_against_reference(prove):
    prove(reverse_gradient, edges=[sample(torch.empty(0, 3).double()), sample(torch.tensor(0.5).double(), 2)], kept=0)


def test_strength_may_be_a_tensor_that_changes_in_training():
    x, strength = torch.ones(3, requires_grad=True), torch.tensor(0.5)
    y = reverse_gradient(x, strength)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [-0.5] * 3
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_twice_is_scaling():
    x = torch.ones(3, requires_grad=True)
    assert torch.autograd.grad(reverse_gradient(reverse_gradient(x, 2.0), 3.0).sum(), x)[0].tolist() == [6.0] * 3


def test_check(passes_check):
    passes_check(reverse_gradient)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(reverse_gradient, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "reverse_gradient: x must be a floating tensor"),
        ((torch.ones(2), "1"), TypeError, "reverse_gradient: strength must be a number or a tensor with one element, got str '1'"),
        ((torch.ones(2), torch.ones(2)), ValueError, "strength must be a number or a tensor with one element"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        reverse_gradient(*args)
