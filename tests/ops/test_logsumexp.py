"""logsumexp: without overflow, from the output alone."""

import pytest
import torch

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

INF = float("inf")


def test_against_reference(prove):
    edges = [
        pb.sample(torch.ones(0, 3, dtype=torch.float64)),
        pb.sample(torch.ones(1, dtype=torch.float64)),
        pb.sample(torch.ones(2, 1, dtype=torch.float64), 0),
    ]
    prove(pb.ops.logsumexp, edges=edges, kept=0)


def test_check(passes_check):
    passes_check(pb.ops.logsumexp)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.logsumexp, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, r"logsumexp: x must be a floating tensor"),
        ((torch.ones(2, 3), 2), IndexError, r"logsumexp: dim must be a dimension of a tensor of shape \[2, 3\], got 2"),
        ((torch.ones(()),), IndexError, r"logsumexp: dim must be a dimension"),
        ((torch.ones(2, 0),), ValueError, r"logsumexp: x must have a size of at least 1 along dim -1"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.logsumexp(*args)


def test_infinite_entries():
    x = torch.tensor([[-INF, -INF], [-INF, 1.0], [1000.0, 1000.0], [-1000.0, -1000.0]], requires_grad=True)
    y = pb.ops.logsumexp(x)
    torch.testing.assert_close(y, torch.logsumexp(x, -1))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.tolist() == [[0, 0], [0, 1], [0.5, 0.5], [0.5, 0.5]]
