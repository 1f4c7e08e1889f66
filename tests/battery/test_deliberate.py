"""Gradients that are another map on purpose are notes; continuous forwards with a wrong gradient are faults."""

import pytest
import torch

import pullback as pb
from pullback.battery.deliberate import jump_of
from pullback.battery.probe import Probe, Settings


def op(forward, backward):
    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            ctx.save_for_backward(*xs)
            return forward(*xs)

        @staticmethod
        def backward(ctx, *dys):
            return backward(*ctx.saved_tensors, *dys)

    return Op


def x(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def spike(v, current):
    u = 0.9 * v + current
    s = (u > 0).to(u.dtype)
    return s, u * (1 - s)


def spike_grad(v, current, ds, du):
    u = 0.9 * v + current
    g = ds / (1 + u * u) + du
    return 0.9 * g, g


SURROGATES = {
    "scaled sign": (op(lambda w: w.sign() * w.abs().mean(), lambda w, dy: dy), (x(3, 4),)),
    "affine quantiser": (op(lambda v: (v / v.abs().max() * 7).round() * v.abs().max() / 7, lambda v, dy: dy), (x(20),)),
    "spike with reset": (op(spike, spike_grad), (x(6), x(6))),
    "injected loss": (op(lambda v, loss: v.view_as(v), lambda v, loss, dy: (dy, torch.ones_like(loss))), (x(4), x(1))),
}
FAULTS = {
    "steep": (op(lambda v: torch.sin(50 * v), lambda v, dy: dy), (x(5),)),
    "kinked": (op(lambda v: v.clamp(min=0), lambda v, dy: dy), (x(8),)),
    "smooth": (op(lambda v: v.exp(), lambda v, dy: dy), (x(5),)),
}


@pytest.mark.parametrize("name", SURROGATES)
def test_a_surrogate_is_a_note(name):
    function, inputs = SURROGATES[name]
    report = pb.check(function, inputs, select=["PB501", "PB503", "PB512"])
    assert "PB512" in {f.code for f in report.findings}
    assert not [f for f in report.findings if f.severity == "error"], str(report)


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_gradient_of_a_continuous_forward_stays_one(name):
    function, inputs = FAULTS[name]
    assert "PB501" in {f.code for f in pb.check(function, inputs, select=["PB501", "PB512"]).findings}


@pytest.mark.parametrize("seed", range(5))
def test_jumps_are_told_from_steepness(seed):
    def jumps(forward):
        probe = Probe(pb.case(op(forward, lambda v, dy: dy), x(6)), Settings())
        leaf = probe.exact.wanted[0]
        return jump_of(probe.exact, leaf.path, leaf.template, seed)

    assert jumps(torch.floor)
    assert jumps(lambda v: (v * 1000).round() / 1000)
    assert not jumps(lambda v: torch.tanh(1e5 * v))
    assert not jumps(lambda v: v.sort()[0].cumsum(0).abs())
