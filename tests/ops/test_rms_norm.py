"""rms_norm: the root-mean-square norm."""

import pytest
import torch
import torch.nn.functional as F

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_against_reference(prove):
    weight = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    edges = [pb.sample(torch.ones(0, 4, dtype=torch.float64), weight), pb.sample(torch.full((1,), 2.0, dtype=torch.float64)), pb.sample(weight)]
    prove(pb.ops.rms_norm, edges=edges, kept=4 / 6)


def test_check(passes_check):
    passes_check(pb.ops.rms_norm, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(pb.ops.rms_norm, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64),), TypeError, r"rms_norm: x must be a floating tensor"),
        ((torch.ones(()),), ValueError, r"rms_norm: x must have at least one dimension"),
        ((torch.ones(2, 3), torch.ones(2)), ValueError, r"rms_norm: weight must have the shape \[3\], got \[2\]"),
        ((torch.ones(2, 3), None, -1.0), ValueError, r"rms_norm: eps must be at least 0.0, got -1.0"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        pb.ops.rms_norm(*args)


@pytest.mark.parametrize("shape", [(700, 96), (3, 100000), (2, 5, 7)])
def test_blocks_of_rows_agree_with_torch(shape):
    torch.manual_seed(0)
    x, weight = torch.randn(shape, dtype=torch.float64).requires_grad_(), torch.randn(shape[-1], dtype=torch.float64).requires_grad_()
    dy = torch.randn(shape, dtype=torch.float64)
    got = torch.autograd.grad(pb.ops.rms_norm(x, weight, 1e-5), (x, weight), dy)
    torch.testing.assert_close(got, torch.autograd.grad(F.rms_norm(x, shape[-1:], weight, 1e-5), (x, weight), dy))


def test_half_precision_keeps_its_sums_in_float32():
    x = torch.full((1, 4096), 0.1, dtype=torch.bfloat16)
    torch.testing.assert_close(pb.ops.rms_norm(x), torch.ones_like(x))
    big = torch.full((2, 8), 300.0, dtype=torch.float16)
    assert torch.equal(pb.ops.rms_norm(big), torch.ones_like(big))
