"""linear_gelu: a linear layer with its activation in one node."""

import pytest
import torch

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_against_reference(prove):
    x, weight, bias = (torch.ones(*shape, dtype=torch.float64) for shape in ((4,), (3, 4), (3,)))
    edges = [
        pb.sample(x.expand(0, 4), weight, bias),
        pb.sample(x, weight, bias),
        pb.sample(x[:1], weight[:1, :1]),
        pb.sample(x.expand(2, 0, 4), weight),
    ]
    prove(pb.ops.linear_gelu, edges=edges, kept=4)


def test_check(passes_check):
    passes_check(pb.ops.linear_gelu, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.linear_gelu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (
            (torch.ones(2, 3), torch.ones(4, 2)),
            ValueError,
            r"linear_gelu: x must have the shape \[..., 2\] for a weight of shape \[4, 2\], got \[2, 3\]",
        ),
        ((torch.ones(2, 3), torch.ones(3)), ValueError, r"linear_gelu: weight must have the shape \[out, in\], got \[3\]"),
        ((torch.ones(2, 3), torch.ones(4, 3), torch.ones(3)), ValueError, r"linear_gelu: bias must have the shape \[4\], got \[3\]"),
        ((torch.ones(2, 3), torch.ones(4, 3).double()), TypeError, r"linear_gelu: weight must have x's dtype torch.float32, got torch.float64"),
        ((torch.ones(2, 3), torch.ones(4, 3).long()), TypeError, r"linear_gelu: weight must be a floating tensor"),
        ((torch.ones(2, 3), torch.ones(4, 3), None, "selu"), ValueError, r"linear_gelu: approximate must be one of"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.linear_gelu(*args)


def test_the_faster_product_gives_the_same(monkeypatch):
    """Whatever the probe says: both answers are forced."""
    from pullback.ops.fused import _products as products

    torch.manual_seed(0)
    monkeypatch.setattr(products, "SMALL", 1)
    tensors = [torch.randn(*shape).requires_grad_() for shape in ((4, 9, 16), (8, 16), (8,))]
    dy = torch.randn(4, 9, 8)
    results, asked = [], []
    for fast in (False, True):
        monkeypatch.setattr(products, "_probe", lambda x, weight, rows, fast=fast: asked.append(fast) or fast)
        products._chosen.clear()
        results.append(torch.autograd.grad(pb.ops.linear_gelu(*tensors), tensors, dy))
    products._chosen.clear()
    assert asked == [False] * 3 + [True] * 3
    torch.testing.assert_close(*results)


def test_probing_is_remembered_and_can_be_switched_off(monkeypatch):
    from pullback.ops.fused import _products as products

    asked = []
    monkeypatch.setattr(products, "SMALL", 1)
    monkeypatch.setattr(products, "_probe", lambda *given: bool(asked.append(given)))
    monkeypatch.setattr(products, "_chosen", {})
    x, weight = torch.ones(8, 4), torch.ones(5, 4)
    before = pb.ops.probe_products(True)
    try:
        for _ in range(3):
            pb.ops.linear_gelu(x, weight)
        assert len(asked) == 1
        pb.ops.probe_products(False)
        pb.ops.linear_gelu(x, weight)
        assert len(asked) == 1
        assert products._chosen == {}
        pb.ops.probe_products(True)
        torch.use_deterministic_algorithms(True)
        pb.ops.linear_gelu(x, weight)
        assert len(asked) == 1
    finally:
        torch.use_deterministic_algorithms(False)
        pb.ops.probe_products(before)


def test_the_probe_times_both():
    from pullback.ops.fused import _products as products

    assert products._probe(torch.ones(3, 4, 5), torch.ones(6, 5), 2) in (True, False)
