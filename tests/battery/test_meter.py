"""What a check of a heavy op may cost, counted in calls."""

from collections import Counter

import pytest
import torch

import pullback as pb
from pullback.battery.meter import Meter, Spent
from pullback.battery.probe import Probe


class Norm(torch.autograd.Function):
    """Takes single precision only, as kernels do, and counts its calls."""

    calls = Counter()

    @staticmethod
    def forward(ctx, x, w, eps=1e-5):
        Norm.calls["forward"] += 1
        if x.dtype != torch.float32:
            raise TypeError("single precision only")
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, dy):
        Norm.calls["backward"] += 1
        x, w, r = ctx.saved_tensors
        h = dy * w
        return r * h - r.pow(3) * x * (h * x).mean(-1, keepdim=True), (dy * x * r).sum(0), None


class ForgetsTheMean(Norm):
    @staticmethod
    def backward(ctx, dy):
        _, grad_w, _ = Norm.backward(ctx, dy)
        _, w, r = ctx.saved_tensors
        return r * dy * w, grad_w, None


class ReadsRows(Norm):
    """Takes grad_output for packed."""

    @staticmethod
    def backward(ctx, dy):
        return Norm.backward(ctx, torch.as_strided(dy, dy.shape, (dy.shape[-1], 1)))


def arguments():
    x = torch.linspace(-1.5, 2.0, 64).sin().reshape(4, 16)
    return x.requires_grad_(), torch.linspace(0.5, 1.5, 16).requires_grad_()


def weighing(seconds):
    """What takes the place of `Probe.weigh`: every forward takes so long."""

    def weigh(probe):
        probe.meter.forward = seconds

    return weigh


def counted(monkeypatch, seconds, target=Norm):
    monkeypatch.setattr(Probe, "weigh", weighing(seconds))
    Norm.calls.clear()
    report = pb.check(target, (*arguments(), 1e-5))
    return Norm.calls["forward"], {f.code for f in report.findings if f.severity == "error"}, report


def test_a_heavy_op_is_called_much_less_often_than_a_light_one(monkeypatch):
    heavy, _, report = counted(monkeypatch, 0.3)
    light, _, _ = counted(monkeypatch, 1e-4)
    assert heavy < 150
    assert light > 1000
    stopped = {run.code for run in report.checks if "one evaluation takes 0.3 s" in run.reason}
    assert "PB502" in stopped
    assert report.ok


@pytest.mark.parametrize(("target", "code"), [(ForgetsTheMean, "PB501"), (ReadsRows, "PB604")])
def test_a_heavy_op_that_is_wrong_is_found_out(monkeypatch, target, code):
    assert code in counted(monkeypatch, 0.3, target)[1]


def test_what_is_free_is_charged_to_nobody():
    meter = Meter(forward=10.0)
    with meter.sweep():
        with meter.free():
            for _ in range(100):
                meter.spend("forward")
        assert meter.left == 40.0
    assert meter.left == float("inf")


def test_a_sweep_ends_when_nothing_is_left():
    meter = Meter(forward=10.0)
    with meter.sweep():
        for _ in range(4):
            meter.spend("forward")
        with pytest.raises(Spent):
            meter.spend("forward")
