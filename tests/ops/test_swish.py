import pytest
import torch

import pullback as pb

swish, sample = pb.ops.swish, pb.sample


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 3).double()), sample(torch.tensor(-0.5).double()), sample(torch.tensor([-800.0, 0.0, 800.0]).double(), 2)]
    prove(swish, edges=edges, kept=0)


def test_check(passes_check):
    passes_check(swish)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(swish, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, r"swish: x must be a floating tensor, got dtype torch.int64. Convert it: x.float\(\)."),
        (([1.0],), TypeError, r"swish: x must be a floating tensor, got list \[1.0\]"),
        ((torch.ones(2), "1"), TypeError, "swish: beta must be a number or a floating tensor, got str '1'"),
        ((torch.ones(2), torch.ones(3)), ValueError, r"swish: the shapes do not broadcast together: x \[2\], beta \[3\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        swish(*args)
