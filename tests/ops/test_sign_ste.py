import pytest
import torch

import pullback as pb

sign_ste, sample = pb.ops.sign_ste, pb.sample


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 3).double()), sample(torch.tensor(0.0).double()), sample(torch.tensor([-1.0, -0.0, 1.0, 1.5]).double())]
    prove(sign_ste, edges=edges, kept=0)


def test_there_is_no_zero_among_the_values():
    assert set(sign_ste(torch.tensor([-2.0, -0.0, 0.0, torch.inf])).tolist()) == {-1.0, 1.0}


def test_check(passes_check):
    passes_check(sign_ste)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(sign_ste, thorough=True)


def test_refuses_integers():
    with pytest.raises(TypeError, match=r"sign_ste: x must be a floating tensor, got dtype torch.int64"):
        sign_ste(torch.ones(2, dtype=torch.int64))
