import pytest
import torch

import pullback as pb

exp_scaled, sample = pb.ops.exp_scaled, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(exp_scaled, edges=[sample(EMPTY), sample(ONE, 0.0), sample(torch.tensor([-800.0, 0.0, 800.0]).double())], kept=0)


def test_check(passes_check):
    passes_check(exp_scaled)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(exp_scaled, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "exp_scaled: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), "1"), TypeError, "exp_scaled: scale must be a number or a floating tensor, got str"),
        ((torch.ones(2), torch.ones(3)), ValueError, "exp_scaled: the shapes do not broadcast"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        exp_scaled(*args)
