import pytest
import torch

import pullback as pb

round_ste, sample = pb.ops.round_ste, pb.sample


def test_against_reference(prove):
    prove(round_ste, edges=[sample(torch.empty(0, 3).double()), sample(torch.tensor(0.5).double())], kept=0)


def test_check(passes_check):
    passes_check(round_ste)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(round_ste, thorough=True)


@pytest.mark.parametrize(
    ("x", "message"), [(torch.ones(2, dtype=torch.int64), "round_ste: x must be a floating tensor, got dtype torch.int64"), (1.5, "got float 1.5")]
)
def test_refuses(x, message):
    with pytest.raises(TypeError, match=message):
        round_ste(x)
