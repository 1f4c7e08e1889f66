import pytest
import torch

import pullback as pb

dropout, sample = pb.ops.dropout, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(dropout, edges=[sample(EMPTY, 0.5, seed=1), sample(ONE, 0.5, seed=1), sample(ONE, 1.0), sample(ONE, 0), sample(ONE, 0.5, False)], kept=1)


def test_check(passes_check):
    passes_check(dropout)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(dropout, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "dropout: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), 1.5), ValueError, "dropout: p must be from 0 to 1, got 1.5"),
        ((torch.ones(2), 0.5, True, 0.5), TypeError, "dropout: seed must be an integer, got float 0.5"),
        ((torch.ones(2), 0.5, True, torch.ones(1)), TypeError, "dropout: seed must be an integer or a tensor of dtype torch.int64"),
        ((torch.ones(2), 0.5, True, torch.ones(2).long()), ValueError, r"dropout: seed must have one element, got shape \[2\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        dropout(*args)
