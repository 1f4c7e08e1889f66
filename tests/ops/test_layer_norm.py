"""layer_norm: torch's kernel, with derivatives of every order."""

import pytest
import torch
import torch.nn.functional as F

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_against_reference(prove):
    weight = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    edges = [pb.sample(torch.ones(0, 4, dtype=torch.float64), weight, weight), pb.sample(torch.ones(1, dtype=torch.float64)), pb.sample(weight)]
    prove(pb.ops.layer_norm, edges=edges, kept=2 * 4 / 6)


def test_check(passes_check):
    passes_check(pb.ops.layer_norm, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.layer_norm, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, r"layer_norm: x must be a floating tensor"),
        ((torch.ones(()),), ValueError, r"layer_norm: x must have at least one dimension"),
        ((torch.ones(2, 3), None, torch.ones(2)), ValueError, r"layer_norm: bias must have the shape \[3\], got \[2\]"),
        ((torch.ones(2, 3), None, None, "1"), TypeError, r"layer_norm: eps must be a number, got str"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.layer_norm(*args)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("weighted", [True, False])
def test_every_subset_of_gradients(wanted, weighted):
    torch.manual_seed(0)
    given = [torch.randn(3, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64) if weighted else None, torch.randn(6, dtype=torch.float64)]
    args = [a.requires_grad_(i in wanted) if a is not None else None for i, a in enumerate(given)]
    leaves = [a for a in args if a is not None and a.requires_grad]
    if not leaves:
        return
    dy = torch.randn(3, 6, dtype=torch.float64)
    got = torch.autograd.grad(pb.ops.layer_norm(*args), leaves, dy)
    torch.testing.assert_close(got, torch.autograd.grad(F.layer_norm(args[0], (6,), args[1], args[2]), leaves, dy))


def test_bias_alone_keeps_nothing():
    bias = torch.zeros(4, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        pb.ops.layer_norm(torch.ones(3, 4), torch.ones(4), bias)
    assert kept == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_float32_weight_beside_another_dtype(dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(5, 6, dtype=dtype).requires_grad_(), torch.randn(6).requires_grad_()
    y = pb.ops.layer_norm(x, weight, weight)
    want = F.layer_norm(x.double(), (6,), weight.double(), weight.double())
    assert y.dtype == dtype
    tolerance = {"rtol": 0, "atol": 16 * torch.finfo(dtype).eps}
    torch.testing.assert_close(y.double(), want, **tolerance)
    got = torch.autograd.grad(y.double().sin().sum(), (x, weight))
    exact = torch.autograd.grad(want.sin().sum(), (x, weight))
    assert [g.dtype for g in got] == [dtype, torch.float32]
    torch.testing.assert_close(got[0], exact[0].to(dtype), rtol=0, atol=0.1 if dtype is torch.bfloat16 else 1e-12)
