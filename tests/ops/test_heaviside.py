import pytest
import torch

import pullback as pb

heaviside, sample = pb.ops.heaviside, pb.sample
SURROGATES = ["arctan", "fast_sigmoid", "triangle"]


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 3).double(), name) for name in SURROGATES]
    edges += [sample(torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0]).double(), name, 2.0) for name in SURROGATES]
    prove(heaviside, edges=[*edges, sample(torch.tensor(0.3).double())], kept=0)


@pytest.mark.parametrize("name", ["arctan", "triangle"])
def test_a_smooth_step_rises_from_0_to_1(name):
    """These two surrogates are distribution functions; the fast sigmoid of the literature is not, its slope at the threshold is 1."""
    x = torch.linspace(-400, 400, 800001, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(heaviside(x, name, 1.5).sum(), x)[0]
    assert torch.trapezoid(slope, x.detach()).item() == pytest.approx(1, abs=2e-3)


def test_a_neuron_at_its_threshold_fires():
    assert heaviside(torch.tensor([-1e-30, 0.0, 1e-30])).tolist() == [0, 1, 1]


def test_check(passes_check):
    passes_check(heaviside)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(heaviside, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.bool),), TypeError, "heaviside: x must be a floating tensor, got dtype torch.bool"),
        ((torch.ones(2), "sigmoid"), ValueError, "heaviside: surrogate must be one of 'arctan', 'fast_sigmoid', 'triangle', got 'sigmoid'"),
        ((torch.ones(2), "arctan", 0), ValueError, "heaviside: alpha must be positive, got 0"),
        ((torch.ones(2), "arctan", "2"), TypeError, "heaviside: alpha must be a number or None, got str '2'"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        heaviside(*args)
