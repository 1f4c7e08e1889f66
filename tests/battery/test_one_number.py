"""A learned scale comes as a tensor without dimensions and as one of shape [1]."""

import pytest
import torch

import pullback as pb


def scaling(of_scale):
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x, scale)
            return x * scale

        @staticmethod
        def backward(ctx, dy):
            x, scale = ctx.saved_tensors
            return dy * scale, of_scale(dy * x, scale)

    return Scales


def found(of_scale, *shape, requires_grad=True):
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    scale = torch.full(shape, 0.7, dtype=torch.float64, requires_grad=requires_grad)
    return pb.check(scaling(of_scale), (x, scale), select=["PB625"]).findings


def test_a_gradient_that_fits_one_of_the_shapes_is_told():
    (finding,) = found(lambda g, scale: g.sum())
    assert (finding.code, finding.severity) == ("PB625", "note")
    assert "scale of shape [1]" in finding.message
    assert finding.fix.startswith("Return grad_scale.reshape(scale.shape)")
    (finding,) = found(lambda g, scale: g.sum().reshape(1) * (scale[0] > 0), 1)
    assert "scale of shape []" in finding.message


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("right", [lambda g, s: g.sum().reshape(s.shape), lambda g, s: g.sum_to_size(s.shape), lambda g, s: g.sum().reshape(1)])
def test_a_gradient_that_fits_both_is_not(right, shape):
    assert not found(right, *shape)


def test_nothing_is_said_of_a_scale_without_a_gradient():
    assert not found(lambda g, scale: g.sum(), requires_grad=False)


def test_the_search_finds_it_too():
    findings = pb.check(scaling(lambda g, scale: g.sum())).findings
    assert [f.severity for f in findings if "of shape [1]" in f.message] == ["note"]
