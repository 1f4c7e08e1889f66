import pytest
import torch

import pullback as pb

gelu, sample = pb.ops.gelu, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(gelu, edges=[sample(EMPTY), sample(ONE, "tanh"), sample(torch.tensor([-800.0, 0.0, 800.0]).double(), "tanh")], kept=0)


def test_check(passes_check):
    passes_check(gelu)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(gelu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "gelu: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), "tan"), ValueError, r"gelu: approximate must be one of 'none', 'tanh', got 'tan'"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        gelu(*args)
