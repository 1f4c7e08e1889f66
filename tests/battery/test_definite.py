"""Positive definite matrices stay so at special values and at other sizes: what takes only such matrices is not to blame for others."""

import pytest
import torch

import pullback as pb
from pullback.battery import numeric
from pullback.battery.evaluate import Evaluator
from pullback.battery.probe import Probe
from pullback.battery.settings import Settings
from pullback.battery.sizes import Resizer, symbols
from pullback.battery.special import special_points


class InverseRoot(torch.autograd.Function):
    """NaN outside of the positive definite matrices."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh((a + a.mT) / 2)
        roots = values.rsqrt()
        ctx.save_for_backward(values, vectors)
        return (vectors * roots.unsqueeze(-2)) @ vectors.mT

    @staticmethod
    def backward(ctx, dy):
        values, vectors = ctx.saved_tensors
        roots = values.sqrt()
        r, s = roots.unsqueeze(-1), roots.unsqueeze(-2)
        inner = vectors.mT @ ((dy + dy.mT) / 2) @ vectors
        return -vectors @ (inner / (r * s * (r + s))) @ vectors.mT


def matrix(seed=0, n=4):
    draw = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (draw @ draw.mT + torch.eye(n, dtype=torch.float64)).requires_grad_()


def test_matrices_are_told_and_mended():
    assert numeric.is_definite(matrix())
    assert not numeric.is_definite(torch.ones(3, 3))
    assert not numeric.is_definite(torch.eye(3)[:2])
    assert not numeric.is_definite(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
    assert numeric.is_definite(numeric.made_definite(torch.zeros(2, 3, 3)))
    assert numeric.is_definite(numeric.made_definite(-matrix()))
    assert torch.equal(numeric.made_definite(matrix()), matrix())


def test_special_values_and_other_sizes_keep_them_definite():
    evaluator: Evaluator = Probe(pb.case(InverseRoot, matrix()), Settings()).exact
    assert all(numeric.is_definite(point.value) for point in special_points(evaluator))
    (symbol, *_) = symbols(evaluator)
    resized = Resizer(evaluator).resized(symbol, 6)
    assert resized is not None
    assert numeric.is_definite(resized.leaves[0].template)


def test_an_op_of_definite_matrices_passes():
    report = pb.check(InverseRoot, matrix(), select=["PB501", "PB502", "PB625"])
    assert not [f for f in report.findings if f.severity != "note"], str(report)


class LogDeterminants(torch.autograd.Function):
    """Of one matrix or of many."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return 2 * torch.linalg.cholesky(a).diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy[..., None, None] * a.inverse()


class LogDeterminantsOfOne(LogDeterminants):
    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy * a.inverse()


class LogDeterminantsMixed(LogDeterminants):
    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy.sum() * a.inverse()


class Cholesky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        lower = torch.linalg.cholesky(a)
        ctx.save_for_backward(lower)
        return lower

    @staticmethod
    def backward(ctx, dy):
        (lower,) = ctx.saved_tensors
        inner = (lower.mT @ dy).tril()
        inner = inner - torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1)) / 2
        half = torch.linalg.solve_triangular(lower.mT, inner, upper=True)
        whole = torch.linalg.solve_triangular(lower.mT, half.mT, upper=True).mT
        return (whole + whole.mT) / 2


class CholeskyOfTheNext(Cholesky):
    @staticmethod
    def backward(ctx, dy):
        gradient = Cholesky.backward(ctx, dy)
        return gradient.roll(1, 0) if gradient.dim() > 2 else gradient


@pytest.mark.parametrize("given", [True, False], ids=["given", "searched"])
@pytest.mark.parametrize("function", [LogDeterminantsOfOne, LogDeterminantsMixed, CholeskyOfTheNext])
def test_a_fault_that_a_batch_of_matrices_shows_is_told_where_the_sample_is_one(function, given):
    findings = pb.check(function, *((matrix(),) if given else ()), select=["PB625"]).findings
    assert ["a of 3 axes" in f.message for f in findings if f.severity == "warning"] == [True]


@pytest.mark.parametrize("given", [True, False], ids=["given", "searched"])
@pytest.mark.parametrize("function", [LogDeterminants, Cholesky])
def test_right_for_a_batch_of_symmetric_matrices(function, given):
    report = pb.check(function, *((matrix(),) if given else ()), select=["PB501", "PB625"])
    assert not [f for f in report.findings if f.severity != "note"]
