import pytest
import torch

import pullback as pb

relu, sample = pb.ops.relu, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(relu, edges=[sample(EMPTY), sample(ONE), sample(torch.tensor([-0.0, 0.0, float("nan")]).double())], kept=0)


def test_check(passes_check):
    passes_check(relu)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(relu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "relu: . must be a floating tensor, got dtype torch.int64"),
        ((None,), TypeError, "relu: x must be a floating tensor, got NoneType None"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        relu(*args)
