import pytest
import torch
import torch.nn.functional as F

import pullback as pb

gumbel_st, sample = pb.ops.gumbel_st, pb.sample


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 3).double()), sample(torch.empty(3, 0).double()), sample(torch.ones(1).double())]
    prove(gumbel_st, edges=edges, random=True, kept=4)


@pytest.mark.parametrize("hard", [True, False])
def test_numbers_of_torch(hard):
    logits = torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_()
    weights = torch.linspace(-1, 1, 12).reshape(3, 4)
    found = []
    for function in (gumbel_st, F.gumbel_softmax):
        torch.manual_seed(3)
        y = function(logits, 0.8, hard=hard)
        found.append((y.detach(), torch.autograd.grad((y * weights).sum(), logits)[0]))
    torch.testing.assert_close(*found)


def test_choices_follow_the_distribution():
    torch.manual_seed(0)
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    drawn = gumbel_st(probabilities.log().expand(20000, 3)).mean(0)
    torch.testing.assert_close(drawn, probabilities, atol=0.015, rtol=0)  # 4.6 standard deviations of a count


def test_the_soft_sample_keeps_no_more_than_itself():
    y = gumbel_st(torch.randn(8, 16, requires_grad=True), hard=False)
    assert pb.saved(y).extra == 0


def test_same_choices_in_every_dtype_and_layout():
    logits = torch.linspace(-1, 2, 12).reshape(3, 4)
    found = []
    for x in (logits, logits.double(), logits.t().contiguous().t()):
        torch.manual_seed(1)
        found.append(gumbel_st(x).float())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_checkpointing_draws_the_same_choice_again():
    logits = torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_()
    found = []
    for run in (gumbel_st, lambda x: torch.utils.checkpoint.checkpoint(gumbel_st, x, use_reentrant=False)):
        torch.manual_seed(5)
        found.append(torch.autograd.grad((run(logits) * logits.detach()).sum(), logits)[0])
    assert torch.equal(*found)


def test_vmap_draws_for_each_example():
    torch.manual_seed(0)
    rows = torch.zeros(64, 5)
    assert len(torch.vmap(gumbel_st, randomness="different")(rows).unique(dim=0)) == 5
    assert len(torch.vmap(gumbel_st, randomness="same")(rows).unique(dim=0)) == 1


def test_check(passes_check):
    passes_check(gumbel_st)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(gumbel_st, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, "gumbel_st: logits must be a floating tensor"),
        ((torch.ones(2), 0), ValueError, "gumbel_st: tau must be positive, got 0"),
        ((torch.ones(2), 1, True, 1), IndexError, "gumbel_st: dim must be a dimension"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        gumbel_st(*args)
