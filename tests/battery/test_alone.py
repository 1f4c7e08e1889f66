"""A check that runs alone, as the printed command does, says what it says among all others."""

import pytest
import torch

import pullback as pb
from pullback.battery.draws import drawing, stream
from pullback.battery.probe import Probe
from pullback.battery.settings import Settings
from pullback.capture.case import Case


class DropsFactor(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


class Clips(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.clamp(-1, 1) * x.cos()


class ReadsRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        return torch.as_strided(dy, dy.shape, (dy.shape[1], 1)) * 3


class Leans(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp() + x / 100

    @staticmethod
    def backward(ctx, dy):
        return dy


class DropsSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.detach().cos()


def ones(*shape):
    return torch.linspace(-1.5, 2, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


CASES = {
    "PB501": (DropsFactor, {}),
    "PB503": (Clips, {}),
    "PB506": (DropsSecond, {"orders": 2}),
    "PB508": (DropsFactor, {"surrogate": torch.sin}),
    "PB511": (Leans, {"reference": torch.exp}),
    "PB604": (ReadsRows, {}),
}


@pytest.mark.parametrize("code", CASES)
def test_alone_as_among_all(code):
    function, options = CASES[code]
    among, alone = (
        [repr(f) for f in pb.check(function, ones(3, 4), select=chosen, seed=5, **options).findings if f.code == code]
        for chosen in (("PB5", "PB6"), (code,))
    )
    assert among
    assert alone == among


def test_another_seed_draws_other_numbers():
    first, second = (pb.check(DropsFactor, ones(3, 4), select=["PB501"], seed=seed).findings[0].evidence for seed in (0, 1))
    assert first != second


def test_draws_do_not_depend_on_who_asked_before():
    lazy, eager = (Probe(Case(DropsFactor, (ones(2, 3),)), Settings()) for _ in range(2))
    _ = eager.baseline, eager.repeats, eager.exact
    assert lazy.nonlinearity == eager.nonlinearity
    assert torch.equal(lazy.generator.get_state(), eager.generator.get_state())
    assert torch.equal(lazy.baseline.cotangents[0], eager.baseline.cotangents[0])


def test_a_stream_of_another_name_leaves_the_first_where_it_was():
    probe = Probe(Case(DropsFactor, (ones(2, 3),)), Settings())
    with drawing(probe, "other"):
        inner = torch.rand(3, generator=probe.generator)
    assert torch.equal(inner, torch.rand(3, generator=stream("0", "DropsFactor", "other")))
    assert torch.equal(torch.rand(3, generator=probe.generator), torch.rand(3, generator=stream("0", "DropsFactor")))
