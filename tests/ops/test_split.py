import pytest
import torch

import pullback as pb

split, sample = pb.ops.split, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(split, edges=[sample(EMPTY, (1, 2), 1), sample(EMPTY, (0, 0)), sample(ONE.reshape(1), 1), sample(ONE.reshape(1), 3)], kept=0)


def test_check(passes_check):
    passes_check(split)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(split, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 1), TypeError, "split: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(3), (1, 1)), ValueError, r"split: sizes must sum up to the size of x along dim, 3; got \[1, 1\]"),
        ((torch.ones(3), 1, 1), IndexError, r"split: dim must be a dimension of a tensor of shape \[3\], got 1"),
        ((torch.ones(3), (4, -1)), ValueError, r"split: sizes\[1\] must be at least 0, got -1"),
        ((torch.ones(3), 0), ValueError, "split: sizes must be at least 1"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        split(*args)
