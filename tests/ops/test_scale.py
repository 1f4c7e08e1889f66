import pytest
import torch

import pullback as pb

scale, sample = pb.ops.scale, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(scale, edges=[sample(EMPTY, 2.0), sample(ONE, 0)], kept=0)


def test_check(passes_check):
    passes_check(scale)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(scale, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 2.0), TypeError, "scale: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), torch.ones(())), TypeError, "scale: factor must be a number, got Tensor"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        scale(*args)
