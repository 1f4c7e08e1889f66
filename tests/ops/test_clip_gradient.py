import pytest
import torch

import pullback as pb

clip_gradient, sample = pb.ops.clip_gradient, pb.sample


def grad(dy, **limits):
    x = torch.zeros_like(dy, requires_grad=True)
    return torch.autograd.grad(clip_gradient(x, **limits), x, dy)[0]


def test_against_reference(prove):
    edges = [sample(torch.empty(0, 3).double(), norm=1.0), sample(torch.empty(0, 3).double(), value=1), sample(torch.tensor(0.5).double(), norm=0.1)]
    prove(clip_gradient, edges=edges, kept=0)


@pytest.mark.parametrize("limits", [{"value": 0.5}, {"norm": 0.75}, {"norm": 0.75, "dim": 1}])
def test_gradients_of_a_hook(limits):
    """The gradient, its own derivatives, and those of torch.func are what a hook in plain torch gives."""
    x = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    found = []
    for function in (clip_gradient, clip_gradient.__pullback__["reference"]):
        (first,) = torch.autograd.grad(function(x.sin(), **limits).pow(3).sum(), x, create_graph=True)
        found.append((first.detach(), torch.autograd.grad(first.sin().sum(), x)[0]))
    torch.testing.assert_close(*found)
    torch.testing.assert_close(torch.func.grad(lambda x: clip_gradient(x.sin(), **limits).pow(3).sum())(x.detach()), found[0][0])


def test_limits():
    assert grad(torch.tensor([-3.0, 0.25, 2.0]), value=0.5).tolist() == [-0.5, 0.25, 0.5]
    assert grad(torch.tensor([3.0, 4.0]), norm=1.0).tolist() == pytest.approx([0.6, 0.8])
    assert grad(torch.tensor([0.3, 0.4]), norm=1.0).tolist() == pytest.approx([0.3, 0.4])
    assert grad(torch.zeros(3), norm=1.0).tolist() == [0.0] * 3
    rows = grad(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), norm=1.0, dim=1)
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


def test_norm_of_half_precision_does_not_overflow():
    got = grad(torch.full((100000,), 2.0, dtype=torch.float16), norm=1.0)
    assert got.dtype is torch.float16
    assert got.float().norm().item() == pytest.approx(1, rel=2e-3)


def test_zero_gradient_has_a_finite_derivative():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(clip_gradient(x, norm=1.0).pow(2).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == pytest.approx([3**-0.5] * 3)  # 2 each, clipped on its way through the op


def test_vmap_takes_a_norm_for_each_example():
    dy = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    got = torch.vmap(torch.func.grad(lambda x, w: (clip_gradient(x, norm=1.0) * w).sum()))(torch.zeros(2, 2), dy)
    torch.testing.assert_close(got, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


def test_check(passes_check):
    passes_check(clip_gradient)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(clip_gradient, thorough=True)


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("x", "limits", "error", "message"),
    [
        (X.long(), {"value": 1}, TypeError, "clip_gradient: x must be a floating tensor"),
        (X, {}, ValueError, "clip_gradient: give either value or norm, got value=None and norm=None"),
        (X, {"value": 1, "norm": 1}, ValueError, "clip_gradient: give either value or norm"),
        (X, {"value": -1}, ValueError, "clip_gradient: value must be positive, got -1"),
        (X, {"norm": "1"}, TypeError, "clip_gradient: norm must be a number or None, got str"),
        (X, {"value": 1, "dim": 0}, ValueError, "clip_gradient: dim goes with norm"),
        (X, {"norm": 1, "dim": (0, 2)}, IndexError, r"clip_gradient: dim must be a dimension of a tensor of shape \[2, 3\], got 2"),
    ],
)
def test_refuses(x, limits, error, message):
    with pytest.raises(error, match=message):
        clip_gradient(x, **limits)
