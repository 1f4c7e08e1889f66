import pytest
import torch

import pullback as pb

sigmoid, sample = pb.ops.sigmoid, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(sigmoid, edges=[sample(EMPTY), sample(ONE)], kept=0)


def test_check(passes_check):
    passes_check(sigmoid)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(sigmoid, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "sigmoid: . must be a floating tensor, got dtype torch.int64"),
        (("x",), TypeError, "sigmoid: x must be a floating tensor, got str"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        sigmoid(*args)


def test_gradient_far_out_is_zero():
    x = torch.tensor([-800.0, -100.0, 100.0, 800.0], dtype=torch.float64, requires_grad=True)
    sigmoid(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.max() < 1e-40
