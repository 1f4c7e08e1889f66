"""linear_act: a linear layer with its activation in one node."""

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
    prove(pb.ops.linear_act, edges=edges, kept=4)


def test_check(passes_check):
    passes_check(pb.ops.linear_act, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.linear_act, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (
            (torch.ones(2, 3), torch.ones(4, 2)),
            ValueError,
            r"linear_act: x must have the shape \[..., 2\] for a weight of shape \[4, 2\], got \[2, 3\]",
        ),
        ((torch.ones(2, 3), torch.ones(3)), ValueError, r"linear_act: weight must have the shape \[out, in\], got \[3\]"),
        ((torch.ones(2, 3), torch.ones(4, 3), torch.ones(3)), ValueError, r"linear_act: bias must have the shape \[4\], got \[3\]"),
        ((torch.ones(2, 3), torch.ones(4, 3).double()), TypeError, r"linear_act: weight must have x's dtype torch.float32, got torch.float64"),
        ((torch.ones(2, 3), torch.ones(4, 3).long()), TypeError, r"linear_act: weight must be a floating tensor"),
        ((torch.ones(2, 3), torch.ones(4, 3), None, "selu"), ValueError, r"linear_act: activation must be one of"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.linear_act(*args)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_activations_that_show_in_their_output_keep_nothing_else(activation):
    x, weight = torch.ones(16, 3, requires_grad=True), torch.ones(8, 3, requires_grad=True)
    y = pb.ops.linear_act(x, weight, activation=activation)
    assert pb.saved(y).extra == 0
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
