import pytest
import torch

import pullback as pb

add_noise, sample = pb.ops.add_noise, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(add_noise, edges=[sample(EMPTY, seed=1), sample(ONE, 2, seed=1), sample(ONE, 0.0, seed=-1)], kept=0)


def test_check(passes_check):
    passes_check(add_noise)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(add_noise, thorough=True)


def test_all_dtypes_get_the_same_noise():
    exact = add_noise(torch.zeros(200_000, dtype=torch.float64), seed=5)
    assert torch.allclose(add_noise(torch.zeros(200_000), seed=5).double(), exact, rtol=0, atol=3e-6)
    assert torch.allclose(add_noise(torch.zeros(200_000).bfloat16(), seed=5).double(), exact, rtol=2**-8, atol=1e-6)


def test_keeps_nothing_for_x_and_a_seed_for_std():
    x = torch.ones(1000, requires_grad=True)
    y = add_noise(x, 0.5)
    assert pb.saved(y).extra <= 8
    std = torch.tensor(0.5, requires_grad=True)
    assert pb.saved(add_noise(x, std)).extra <= 16


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "add_noise: x must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), "1"), TypeError, "add_noise: std must be a number or a floating tensor, got str '1'"),
        ((torch.ones(2), torch.ones(3)), ValueError, r"add_noise: std must broadcast to the shape \[2\], got the shape \[3\]"),
        ((torch.ones(2), 1.0, 0.5), TypeError, "add_noise: seed must be an integer, got float 0.5"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        add_noise(*args)
