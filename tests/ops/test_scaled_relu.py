import pytest
import torch

import pullback as pb

scaled_relu, sample = pb.ops.scaled_relu, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(scaled_relu, edges=[sample(EMPTY, 0.5), sample(ONE, 0.5), sample(ONE, -2), sample(torch.tensor([-0.0, 0.0]).double(), 0.25)], kept=0)


def test_check(passes_check):
    passes_check(scaled_relu)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(scaled_relu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 0.1), TypeError, "scaled_relu: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), "a"), TypeError, "scaled_relu: coefficient must be a number or a floating tensor, got str"),
        ((torch.ones(2), torch.ones(3)), ValueError, r"scaled_relu: coefficient must broadcast to the shape \[2\], got the shape \[3\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        scaled_relu(*args)
