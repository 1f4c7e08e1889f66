"""swiglu: the gated unit."""

import pytest
import torch
import torch.nn.functional as F

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_against_reference(prove):
    one, none = torch.ones(1, dtype=torch.float64), torch.ones(0, 3, dtype=torch.float64)
    prove(pb.ops.swiglu, edges=[pb.sample(none, none), pb.sample(one, one), pb.sample(one[0], one[0])], kept=0)


def test_check(passes_check):
    passes_check(pb.ops.swiglu, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.swiglu, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), torch.ones(2)), TypeError, r"swiglu: gate must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), 3.0), TypeError, r"swiglu: up must be a floating tensor, got float 3.0"),
        ((torch.ones(2), torch.ones(3)), ValueError, r"swiglu: the shapes do not broadcast together: gate \[2\], up \[3\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.swiglu(*args)


def test_long_rows_go_block_by_block():
    torch.manual_seed(0)
    gate, up = torch.randn(2, 300, 500, dtype=torch.float64).unbind()
    gate, up = gate.requires_grad_(), up.requires_grad_()
    dy = torch.randn(300, 500, dtype=torch.float64)
    got = torch.autograd.grad(pb.ops.swiglu(gate, up), (gate, up), dy)
    torch.testing.assert_close(got, torch.autograd.grad(F.silu(gate) * up, (gate, up), dy))


def test_arguments_are_left_alone():
    gate, up = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 4.0])
    pb.ops.swiglu(gate, up)
    assert (gate.tolist(), up.tolist()) == ([1, -2], [3, 4])
