import pytest
import torch

import pullback as pb

guided_relu, sample = pb.ops.guided_relu, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(guided_relu, edges=[sample(EMPTY), sample(ONE), sample(torch.tensor([-0.0, 0.0]).double())], kept=0, second=None)


def test_check(passes_check):
    passes_check(guided_relu)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(guided_relu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "guided_relu: . must be a floating tensor, got dtype torch.int64"),
        ((1.0,), TypeError, "guided_relu: x must be a floating tensor, got float 1.0"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        guided_relu(*args)
