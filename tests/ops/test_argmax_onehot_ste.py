import pytest
import torch

import pullback as pb

argmax_onehot_ste, sample = pb.ops.argmax_onehot_ste, pb.sample


def test_against_reference(prove):
    edges = [
        sample(torch.empty(0, 3).double()),
        sample(torch.empty(3, 0).double()),
        sample(torch.ones(1).double()),
        sample(torch.tensor([[1.0, 2.0, 2.0]]).double(), 1, 2.0),
    ]
    prove(argmax_onehot_ste, edges=edges, kept=0)


def test_check(passes_check):
    passes_check(argmax_onehot_ste)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(argmax_onehot_ste, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "argmax_onehot_ste: x must be a floating tensor"),
        ((torch.ones(2), 1), IndexError, r"argmax_onehot_ste: dim must be a dimension of a tensor of shape \[2\], got 1"),
        ((torch.ones(2), 0, 0.0), ValueError, "argmax_onehot_ste: temperature must be positive, got 0.0"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        argmax_onehot_ste(*args)
