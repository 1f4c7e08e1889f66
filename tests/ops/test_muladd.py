import pytest
import torch

import pullback as pb

muladd, sample = pb.ops.muladd, pb.sample
EMPTY, ONE = torch.empty(0, 3, dtype=torch.float64), torch.tensor(-0.5, dtype=torch.float64)


def test_against_reference(prove):
    prove(muladd, edges=[sample(EMPTY, EMPTY, EMPTY), sample(ONE, ONE, ONE)], kept=0)


def test_check(passes_check):
    passes_check(muladd)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(muladd, thorough=True)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), torch.ones(2), torch.ones(2)), TypeError, "muladd: . must be a floating tensor, got dtype torch.int64"),
        ((torch.ones(2), 3.0, torch.ones(2)), TypeError, "muladd: x must be a floating tensor, got float 3.0"),
        ((torch.ones(2), torch.ones(3), torch.ones(2)), ValueError, r"muladd: the shapes do not broadcast together: w \[2\], x \[3\], b \[2\]"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        muladd(*args)


def test_dtypes_may_differ():
    w, x, b = torch.ones(3, requires_grad=True), torch.ones(2, 3, dtype=torch.float64, requires_grad=True), torch.ones(3).bfloat16().requires_grad_()
    y = muladd(w, x, b)
    y.sum().backward()
    assert (y.dtype, w.grad.dtype, x.grad.dtype, b.grad.dtype) == (torch.float64, torch.float32, torch.float64, torch.bfloat16)
