import pytest
import torch

import pullback as pb

clamp_ste, sample = pb.ops.clamp_ste, pb.sample


def test_against_reference(prove):
    x = torch.tensor([-1.0, 0.0, 2.0]).double()
    prove(clamp_ste, edges=[sample(torch.empty(0, 3).double(), 0, 1), sample(torch.tensor(3.0).double(), 0, 1), sample(x, low=0)], kept=0)


def test_check(passes_check):
    passes_check(clamp_ste)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(clamp_ste, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 0, 1), TypeError, "clamp_ste: x must be a floating tensor"),
        ((torch.ones(2),), ValueError, "clamp_ste: low and high are both None"),
        ((torch.ones(2), "0"), TypeError, "clamp_ste: low must be a number or None, got str '0'"),
        ((torch.ones(2), 1, 0), ValueError, "clamp_ste: high must be at least 1, got 0"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        clamp_ste(*args)
