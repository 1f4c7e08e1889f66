import pytest
import torch

import pullback as pb

gradient_noise, sample = pb.ops.gradient_noise, pb.sample


def test_against_reference(prove):
    prove(gradient_noise, edges=[sample(torch.empty(0, 3).double(), 1), sample(torch.tensor(0.5).double(), 0)], random=True, kept=0)


def noise(x, std=1.0, seed=0):
    torch.manual_seed(seed)
    x = x.detach().requires_grad_()
    return torch.autograd.grad(gradient_noise(x, std), x, torch.zeros_like(x))[0]


def test_distribution():
    drawn = noise(torch.zeros(200000), 0.25)
    assert abs(drawn.mean().item()) < 5 * 0.25 / 200000**0.5
    assert drawn.std().item() == pytest.approx(0.25, rel=0.01)
    assert abs(torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1].item()) < 5 / 200000**0.5


def test_seed_decides_and_strides_do_not():
    x = torch.zeros(6, 8)
    assert torch.equal(noise(x), noise(x))
    assert torch.equal(noise(x), noise(torch.zeros(8, 6).t()))
    assert not torch.equal(noise(x), noise(x, seed=1))
    torch.testing.assert_close(noise(x.double()).float(), noise(x.double()).float())


def test_each_call_has_its_own_noise():
    x = torch.zeros(50, requires_grad=True)
    first, second = (torch.autograd.grad(gradient_noise(x, 1.0).sum(), x)[0] for _ in range(2))
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.7


def test_second_backward_adds_the_same_noise():
    x = torch.zeros(5, requires_grad=True)
    y = gradient_noise(x, 1.0)
    assert torch.equal(*(torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2)))


def test_checkpointed_layers_have_noise_of_their_own():
    def layer(x):
        return gradient_noise(x, 1.0)

    for run in (layer, lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True), lambda x: pb.ops.checkpointed(layer, x)):
        torch.manual_seed(0)
        leaves = [torch.zeros(1000, requires_grad=True) for _ in range(2)]
        sum(run(x).sum() for x in leaves).backward()
        assert abs(float(torch.corrcoef(torch.stack([x.grad for x in leaves]))[0, 1])) < 0.15


def test_checkpointing_gives_the_same_gradient():
    x = torch.ones(5, requires_grad=True)
    found = []
    for run in (
        lambda x: gradient_noise(x.sin(), 1.0),
        lambda x: torch.utils.checkpoint.checkpoint(lambda x: gradient_noise(x.sin(), 1.0), x, use_reentrant=False),
    ):
        torch.manual_seed(4)
        found.append(torch.autograd.grad(run(x).sum(), x)[0])
    assert torch.equal(*found)


def test_vmap_draws_for_each_example():
    def grads(kind):
        torch.manual_seed(0)
        return torch.vmap(torch.func.grad(lambda x: gradient_noise(x, 1.0).sum()), randomness=kind)(torch.zeros(3, 4))

    assert len(grads("same").unique(dim=0)) == 1
    assert len(grads("different").unique(dim=0)) == 3


def test_check(passes_check):
    passes_check(gradient_noise)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(gradient_noise, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 1), TypeError, "gradient_noise: x must be a floating tensor"),
        ((torch.ones(2), -1), ValueError, "gradient_noise: std must be at least 0, got -1"),
        ((torch.ones(2), torch.ones(2)), ValueError, "gradient_noise: std must be a number or a tensor with one element"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        gradient_noise(*args)
