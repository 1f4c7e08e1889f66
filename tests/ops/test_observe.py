import pytest
import torch

import pullback as pb

observe, sample = pb.ops.observe, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(observe, edges=[sample(EMPTY, lambda what, tensor: None), sample(ONE, print)], kept=0)


def test_check(passes_check):
    passes_check(observe)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(observe, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), print), TypeError, "observe: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), 3), TypeError, "observe: callback must be a function of what it is shown and a tensor, got int"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        observe(*args)
