"""Where autograd cannot see the forward, difference quotients say where a gradient is wrong and why."""

import pytest
import torch

import pullback as pb
from pullback.battery.differences import by_differences
from pullback.battery.probe import Probe
from pullback.battery.settings import Settings
from pullback.capture.case import Case

D = torch.float64


def through_numpy(function, gradients):
    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return torch.from_numpy(function(*(t.detach().numpy() for t in (x, w))))

        @staticmethod
        def backward(ctx, dy):
            return gradients(*ctx.saved_tensors, dy)

    return Op


def inputs(dtype=D):
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in ((3, 4), (4,)))


def outer(x, w, dy):
    return dy * w.conj(), (dy * x.conj()).sum(0)


@pytest.mark.parametrize("dtype", [D, torch.complex128])
def test_differences_are_the_gradient(dtype):
    op = through_numpy(lambda x, w: x * w, outer)
    exact = Probe(Case(op, inputs(dtype)), Settings()).exact
    found = by_differences(exact)
    outcome, other = found.forward(), exact.forward()
    cotangent = torch.linspace(-1, 2, 12, dtype=D).to(dtype).view(3, 4)
    for got, expected in zip(found.vjp(outcome, [cotangent]), exact.vjp(other, [cotangent.clone()]), strict=True):
        assert torch.allclose(got, expected, rtol=0, atol=1e-10)


def test_a_cause_is_named_for_a_forward_in_numpy():
    op = through_numpy(lambda x, w: x * w, lambda x, w, dy: (dy * w, 3 * (dy * x).sum(0)))
    (finding,) = pb.check(op, inputs(), select=["PB501"]).findings
    assert finding.attachments["cause"] == "constant-factor"
    assert finding.certain
    assert finding.attachments["gradient"]["shape"] == [4]


def test_large_or_single_precision_inputs_are_left_to_directions():
    op = through_numpy(lambda x, w: x * w, outer)
    x, w = inputs()
    assert by_differences(Probe(Case(op, (x.detach().repeat(10, 1).requires_grad_(), w)), Settings()).exact) is None
    assert by_differences(Probe(Case(op, inputs(torch.float32)), Settings()).native) is None
